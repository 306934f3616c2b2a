"""The warning of a text with many words outside the vocabulary, by every command that reads one."""

import json

import pytest

from tests.launch.support import launch

# Six of the nine words.
TEXT = "w1 w2 unheard of words\nw3 more of it\n"


def warning(space, name, rate="66.67"):
    own = json.loads((space.corpus / "manifest.json").read_text())["splits"]["test"]["oov_rate"]
    return (
        f"warning: {name}: {rate}% of the words are unknown, {100 * own:.2f}% of those of the "
        "run's own test split: results do not compare with those of text that it knows\n"
    )


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("score", ["--output=-"]),
        ("order", ["--output=-", "--noshuffle"]),
        ("generate", ["--num_sentences=1", "--output=-"]),
        ("encode", ["--output=vectors.npy"]),
        ("coherence", ["--output=-"]),
    ],
)
def test_text_is_warned_of_beside_the_data(space, text, tmp_path, command, flags):
    source = "--context" if command == "generate" else "--input"
    flags = [f"--workdir={space.run}", f"{source}={text}", *flags]
    done = launch(command, *flags, cwd=tmp_path, quiet=False)
    assert done.stderr == warning(space, text)
    if "--output=-" in flags:
        assert isinstance(json.loads(done.stdout), dict)


def test_a_text_and_the_sentences_after_it_are_warned_of_each(space, text, tmp_path):
    endings = tmp_path / "endings.txt"
    endings.write_text("w1 never\nw2 w3\n")
    flags = [f"--workdir={space.run}", f"--context={text}", f"--input={endings}"]
    done = launch("score", *flags, quiet=False)
    assert done.stderr == warning(space, text) + warning(space, endings, "25.00")
    assert len(done.stdout.splitlines()) == 2


def test_an_n_best_list_is_warned_of(space, tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("0 ||| w1 unheard ||| ||| -1\n0 ||| of it ||| ||| -2\n")
    flags = [f"--workdir={space.run}", f"--nbest={path}", "--output=-"]
    done = launch("rescore", *flags, quiet=False)
    assert done.stderr == warning(space, path, "75.00")
    assert done.stdout in ("w1 unheard\n", "of it\n")


def test_permutations_and_baselines_are_warned_of(space, text, tmp_path):
    (tmp_path / "orders").mkdir()
    for number, lines in enumerate((TEXT.splitlines(), TEXT.splitlines()[::-1]), start=1):
        (tmp_path / "orders" / f"a.perm-{number}").write_text("\n".join(lines))
    permuted = f"--permuted={tmp_path / 'orders'}"
    done = launch("coherence", f"--workdir={space.run}", permuted, quiet=False)
    assert done.stderr == warning(space, tmp_path / "orders")
    baseline = ["--baseline=maximum_entropy", f"--data={space.corpus}"]
    done = launch("coherence", *baseline, f"--input={text}", quiet=False)
    assert done.stderr.startswith(warning(space, text))


def test_a_split_is_warned_of(space, tmp_path):
    vocabulary = f"--vocabulary={space.corpus / 'vocabulary.tsv'}"
    (tmp_path / "text").write_text(TEXT)
    directory = tmp_path / "corpus"
    launch("prepare", f"--test={tmp_path / 'text'}", vocabulary, f"--output={directory}")
    for command in ("score", "coherence"):
        done = launch(command, f"--workdir={space.run}", f"--data={directory}", quiet=False)
        assert done.stderr == warning(space, f"{directory}, test")


def test_sources_are_warned_of(space, text):
    flags = [f"--workdir={space.autoencoder}", f"--input={text}", "--nomeasure", "--output=-"]
    done = launch("reconstruct", *flags, quiet=False)
    assert done.stderr.startswith(warning(space, text))
    assert len(done.stdout.splitlines()) == 1
