"""Text in scripts without spaces between words."""

import pytest

from dclm_jax.data.documents import TextOptions
from dclm_jax.data.readers import parse_documents
from tests.data.support import read, write

UNDIVIDED = {
    "chinese": "昨天下午我们在河边看见了一只白色的小鸟。它飞得很慢，后来停在一棵大树上休息。",
    "japanese": "昨日の午後、私たちは川のそばで白い小さな鳥を見ました。",
    "thai": "เมื่อวานตอนบ่ายเราเห็นนกสีขาวตัวเล็ก มันบินช้ามาก",
}
DIVIDED = {
    "chinese": "昨天 下午 我们 在 河边 看见 了 一 只 白色 的 小鸟 。",
    "japanese": "昨日 の 午後 、 私 たち は 川 の そば で 白い 小さな 鳥 を 見 まし た 。",
    "thai": "เมื่อวาน ตอน บ่าย เรา เห็น นก สี ขาว ตัว เล็ก มัน บิน ช้า มาก",
    "burmese": "မြန်မာနိုင်ငံ သည် အရှေ့တောင်အာရှ တွင် တည်ရှိ သော နိုင်ငံ ဖြစ် သည်",
    "tibetan": "བཀྲ་ཤིས་ བདེ་ལེགས། ང་ཚོས་ བྱ་ དཀར་པོ་ ཞིག་ མཐོང་།",
    "english": "The names 東京都庁前駅 and 横浜市営地下鉄線 are long . "
    + "We saw a bird . " * 2000,
}


@pytest.mark.parametrize("format", ["prose", "lines"])
@pytest.mark.parametrize("language", UNDIVIDED)
def test_text_that_is_not_divided_into_words_is_warned_of(tmp_path, language, format, caplog):
    pytest.importorskip("sacremoses")
    read(write(tmp_path / "t.txt", "\n".join([UNDIVIDED[language]] * 2)), format)
    assert "t.txt: the text is not divided into words" in caplog.text
    assert "divide the words by spaces, and read the text with --format=lines" in caplog.text
    caplog.clear()
    parse_documents("\n".join([UNDIVIDED[language]] * 2), TextOptions(format))
    assert "text: the text is not divided into words" in caplog.text


def test_the_warning_counts_letters(tmp_path, caplog):
    # 5, 9 and 4 letters in three words, and then 5, 9 and 6.
    read(write(tmp_path / "t.txt", "白色的小鸟 ok\n停在一棵大树上休息 飞得很慢\n"))
    assert not caplog.text
    read(write(tmp_path / "t.txt", "白色的小鸟 ok\n停在一棵大树上休息 飞得很慢的鸟\n"))
    expected = (
        "20 of 22 characters are letters of scripts without spaces, as in '停在一棵大树上休息'"
    )
    assert expected in caplog.text


@pytest.mark.parametrize("language", DIVIDED)
def test_words_are_not_warned_of(tmp_path, language):
    read(write(tmp_path / "t.txt", DIVIDED[language]))


def test_raw_text_with_some_such_words_is_not_warned_of(tmp_path):
    pytest.importorskip("sacremoses")
    read(
        write(
            tmp_path / "t.txt", "We went to 東京都庁前駅 by train, and back on foot in the evening."
        ),
        "prose",
    )
