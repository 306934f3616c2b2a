"""What is prepared can be seen: its documents as text, its parts of speech, its unknown words."""



from dclm_jax.data import read_documents
from tests.launch.support import Workspace, launch


def test_a_split_of_tagged_text_is_measured_by_its_own_tags(space: Workspace, tmp_path):
    text = tmp_path / "text"
    documents = list(read_documents(space.text["test"]))
    lines = []
    for document in documents:
        for words in document.sentences:
            lines.append(
                " ".join(f"{word}/{'VBD' if word[-1] in '13' else 'NN'}" for word in words)
            )
        lines.append("")
    text.write_text("\n".join(lines))
    vocabulary = f"--vocabulary={space.corpus / 'vocabulary.tsv'}"
    told = launch("prepare", f"--test={text}", vocabulary, f"--output={tmp_path / 'out'}").stdout
    assert f"note: {text}: read as tagged text: its words are WORD/TAG\n" in told
    # HanTa would be asked for tags otherwise, and know others.
    found = space.evaluate("--by_pos", f"--data={tmp_path / 'out'}")
    expected = space.evaluate("--by_pos", f"--input={text}", "--format=tagged")
    assert found["by_pos"] == expected["by_pos"]
    assert found["by_pos"]["tagger"] == "input"
    classes = found["by_pos"]["classes"]
    assert set(classes) == {"Noun", "VBD", "END"}
    words = [word for one in documents for sentence in one.sentences for word in sentence]
    assert classes["VBD"]["tokens"] == sum(word[-1] in "13" for word in words)
