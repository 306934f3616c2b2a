"""A trained model as people use it in Python: tables, mixtures, raw text, what it prints."""

import json
import math
import pickle
import re
import shutil
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax import runs
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import read_documents
from dclm_jax.errors import InputError
from dclm_jax.evaluation.adaptation import adapt
from dclm_jax.evaluation.minimal_pairs import minimal_pairs
from dclm_jax.evaluation.target_sums import target_sums
from dclm_jax.training import workdir
from tests.support import changed
from tests.test_read_document import TEXT, language_model

DOCUMENTS = [TEXT, ["dogs bark .", "the unheard dogs ."]]
WITH_GAPS = ["", TEXT[0], " ", TEXT[1]]
GAPS = [WITH_GAPS, [], DOCUMENTS[1], [[]]]
"""The same with sentences and documents without words."""
LEFT_OUT = "sentences without words omitted: 3"


def test_it_shows_itself_in_a_line():
    lm = language_model("ccdclm")
    for value in (lm, lm.read(TEXT), lm.vocabulary):
        assert len(repr(value)) < 200, repr(value)
    assert f"{lm.facts.num_parameters:,} parameters" in repr(lm)
    assert f"{len(lm.vocabulary):,} entries" in repr(lm)


def test_surprisals_are_a_table_of_the_scores():
    lm = language_model("ccdclm")
    columns = lm.surprisals([Document("first", [s.split() for s in TEXT]), DOCUMENTS[1]])
    expected = [
        (name, number, position, token, -log_prob, known)
        for name, document in zip(("first", "1"), lm.score(DOCUMENTS), strict=True)
        for number, sentence in enumerate(document.sentences, start=1)
        for position, (token, log_prob, known) in enumerate(
            zip(sentence.tokens, sentence.log_probs, sentence.known, strict=True), start=1
        )
    ]
    assert [*zip(*(column.tolist() for column in columns.values()), strict=True)] == expected
    assert list(columns) == ["document", "sentence", "position", "word", "surprisal", "known"]
    kinds = [column.dtype.kind for column in columns.values()]
    assert kinds == ["O", "i", "i", "O", "f", "b"]
    assert not columns["known"].all()
    assert {len(column) for column in lm.surprisals([]).values()} == {0}


def test_surprisals_alone_stand_beside():
    lm = language_model("codclm")
    plain, both = lm.surprisals(DOCUMENTS), lm.surprisals(DOCUMENTS, no_context_too=True)
    *_, known = names = [*plain]
    assert [*both] == [*names[:-1], "surprisal_no_context", known]
    assert all(both[name].tolist() == column.tolist() for name, column in plain.items())
    sentences = [[sentence] for document in DOCUMENTS for sentence in document]
    by_itself = lm.surprisals(sentences)["surprisal"]
    np.testing.assert_allclose(both["surprisal_no_context"], by_itself, rtol=1e-5, atol=1e-6)
    assert not np.allclose(both["surprisal"], by_itself)
    assert len(lm.surprisals([], no_context_too=True)["surprisal_no_context"]) == 0
    # A mixture has no reader.
    mixture = dclm_jax.mix(lm, language_model("rnnlm"), 0.0)
    (document,) = mixture.score([DOCUMENTS[0]], no_context_too=True)
    (of_rnnlm,) = language_model("rnnlm").score([DOCUMENTS[0]])
    for mixed, sentence in zip(document.sentences, of_rnnlm.sentences, strict=True):
        np.testing.assert_allclose(mixed.log_probs_no_context or [], sentence.log_probs, rtol=1e-5)


def test_attention_has_the_words_of_targets_and_positions():
    document = ["the cat sat .", "it unheard .", "it"]
    first, second, third = language_model("adclm").attention(document)
    assert (first.targets, first.positions) == (["the", "cat", "sat", ".", "<END>"], ["c_0"])
    assert second.targets == ["it", "unheard", ".", "<END>"]
    assert second.positions == ["<START>", "the", "cat", "sat", "."]
    before = ["<START>", "it", "unheard", "."]
    assert (third.targets, third.positions) == (["it", "<END>"], before)
    assert second.weights.shape == (4, 5) and second.weights.dtype == np.float32
    *_, third, fourth = language_model("adclm_3").attention([*document, "dogs ."])
    assert third.positions == [*second.positions, *before]
    assert fourth.positions == [*third.positions, "<START>", "it"]
    assert fourth.weights.shape == (3, 11)
    first, second, third = language_model("pointer_drnnlm").attention(document)
    assert (first.positions, first.weights.tolist()) == (["softmax"], [[1.0]] * 5)
    assert second.positions == ["softmax", "the", "cat", "sat", ".", "<END>"]
    # M is 6.
    assert third.positions == ["softmax", ".", "<END>", "it", "unheard", ".", "<END>"]
    # n is 2.
    sentences = language_model("rlm_seqbow_att_ef").attention([*document[:2], "dogs .", "it ."])
    assert [sentence.positions for sentence in sentences] == [
        [],
        ["the cat sat ."],
        ["the cat sat .", "it unheard ."],
        ["it unheard .", "dogs ."],
    ]
    shapes = [sentence.weights.shape for sentence in sentences]
    assert shapes == [(5, 0), (4, 1), (3, 2), (3, 2)]


def test_sentences_without_words_have_numbers_and_no_tokens(warns):
    lm = language_model("ccdclm")
    first, second = lm.score(DOCUMENTS)
    with warns(f"^{LEFT_OUT}$"):
        scores = list(lm.score(GAPS))
    assert [score.id for score in scores] == ["0", "1", "2", "3"]
    lengths = [[len(sentence.tokens) for sentence in score.sentences] for score in scores]
    assert lengths == [[0, 5, 0, 4], [], [4, 5], [0]]
    assert [scores[0].sentences[i] for i in (1, 3)] == first.sentences
    assert scores[2].sentences == second.sentences
    assert [score.log_prob for score in scores] == [first.log_prob, 0, second.log_prob, 0]

    expected = lm.surprisals(DOCUMENTS, no_context_too=True)
    with warns(f"^{LEFT_OUT}$"):
        columns = lm.surprisals(GAPS, no_context_too=True)
    for name in ("position", "word", "surprisal", "surprisal_no_context", "known"):
        assert columns[name].tolist() == expected[name].tolist()
    places = [("0", 2), ("0", 4), ("2", 1), ("2", 2)]
    assert [*dict.fromkeys(zip(columns["document"], columns["sentence"], strict=True))] == places


def test_measures_of_documents_are_those_of_the_sentences_with_words(warns):
    lm, other = language_model("ccdclm"), language_model("rnnlm")
    for measure in (
        lm.perplexity,
        lambda documents: target_sums(lm, documents).perplexity,
        lambda documents: dclm_jax.mix(lm, other, tune_on=documents).facts.config["weight"],
    ):
        expected = measure(DOCUMENTS)
        with warns(f"^{LEFT_OUT}; documents without words: 2$"):
            assert measure(GAPS) == expected
    measured = lm.perplexity(DOCUMENTS)
    assert (measured.documents, measured.sentences) == (2, 4)
    assert measured == target_sums(lm, DOCUMENTS).perplexity
    with warns(f"^{LEFT_OUT}$"):
        texts = list(lm.generate(GAPS, 1, max_sentence_words=3))
    assert [document for document, _ in texts] == GAPS


@pytest.mark.parametrize(
    "call",
    [
        lambda lm, sentences: lm.read(sentences).vector.tolist(),
        lambda lm, sentences: lm.read().read(sentences).vector.tolist(),
        lambda lm, sentences: [ids.tolist() for ids in lm.encode(sentences)],
        lambda lm, sentences: [texts for _, texts in lm.generate([sentences], 1)],
    ],
    ids=["read", "read on", "encode", "generate"],
)
def test_sentences_without_words_are_not_read(call, warns):
    lm = language_model("ccdclm")
    expected = call(lm, TEXT)
    with warns("^sentences without words omitted: 2$"):
        assert call(lm, WITH_GAPS) == expected


def test_sentences_without_words_have_no_place_in_orders_sources_and_attention(warns):
    lm = language_model("ccdclm")
    expected = lm.order(["the cat sat .", "it slept .", "dogs bark ."])
    with warns("^sentences without words omitted: 2$"):
        ordered = lm.order(["", "the cat sat .", "it slept .", [], "dogs bark ."])
    assert ordered == expected._replace(order=[[1, 2, 4][i] for i in expected.order])

    lm = language_model("standard_autoencoder")
    expected = lm.read(TEXT, TEXT).vector.tolist()
    with warns("^sentences without words omitted: 2$"):
        assert lm.read(WITH_GAPS, TEXT).vector.tolist() == expected

    lm = language_model("adclm")
    expected = lm.attention(TEXT)
    with warns("^sentences without words omitted: 2$"):
        nothing, first, _, second = lm.attention(WITH_GAPS)
    assert (nothing.targets, nothing.positions, nothing.weights.shape) == ([], [], (0, 0))
    for attention, of_words in zip((first, second), expected, strict=True):
        assert attention[:2] == of_words[:2]
        assert attention.weights.tolist() == of_words.weights.tolist()


@pytest.mark.parametrize("documents", [[], [[]], [["", " "], [[]]]])
def test_a_measure_of_no_words_is_refused(documents):
    lm = language_model("ccdclm")
    for measure, purpose in (
        (lm.perplexity, "score"),
        (lambda documents: dclm_jax.mix(lm, lm, tune_on=documents), "tune the weight on"),
        (lambda documents: lm.order(documents[0] if documents else []), "put in order"),
    ):
        with pytest.raises(InputError, match=f"there are no words to {purpose}; "):
            measure(documents)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_mixture_has_the_weighted_probabilities(weight):
    first, second = language_model("ccdclm"), language_model("rnnlm")
    mixture = dclm_jax.mix(first, second, weight)
    tables = [lm.surprisals(DOCUMENTS)["surprisal"] for lm in (first, second, mixture)]
    p, q, mixed = (np.exp(-table) for table in tables)
    np.testing.assert_allclose(mixed, weight * p + (1 - weight) * q, rtol=1e-6)
    measured = mixture.perplexity(DOCUMENTS)
    assert measured.nll == pytest.approx(tables[-1].sum())
    assert mixture.scorer.context_order is None
    assert dclm_jax.mix(second, second, 0.5).scorer.context_order == 0


def test_the_weight_of_a_mixture_is_found_on_documents():
    first, second = language_model("ccdclm"), language_model("rnnlm")
    mixture = dclm_jax.mix(first, second, tune_on=DOCUMENTS)
    p, q = (np.exp(-lm.surprisals(DOCUMENTS)["surprisal"]) for lm in (first, second))
    weights = np.linspace(0, 1, 1001)[:, None]
    best = np.log(weights * p + (1 - weights) * q).sum(axis=1).argmax()
    assert mixture.facts.config["weight"] == pytest.approx(weights[best, 0], abs=2e-3)


def test_raw_text_is_scored_and_read(warns):
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    raw = TrainingText(TextOptions("prose", lowercase=True))
    lm = changed(language_model("ccdclm"), text=raw)
    (score,) = lm.score(lm.documents("The cat sat. It slept."))
    assert [sentence.text for sentence in score.sentences] == TEXT
    state = lm.read_text("The cat sat. It slept.")
    assert state.vector.tolist() == lm.read(TEXT).vector.tolist()
    with warns("begin with =: 1; title words omitted: 1,"):
        (first,) = lm.documents("The cat didn't.\n\nIt slept!\n= Next\nDogs bark.")
    *before, last = first.sentences
    assert before == [["the", "cat", "didn", "'t", "."], ["it", "slept", "!"]]
    assert re.fullmatch("text[0-9]+", first.id)
    (candidate,) = state.score([last])
    assert candidate.log_prob == state.score(["dogs bark ."])[0].log_prob
    (document,) = lm.documents("The Cat slept .", TextOptions())
    assert document.sentences == [["The", "Cat", "slept", "."]]
    with pytest.raises(InputError, match="the text has 2 documents; expected one"):
        lm.read_text("The cat sat .\n=\nIt slept .", TextOptions())


class Series:
    """What is used of a pandas.Series."""

    def __init__(self, index, values):
        self.index, self.values = index, values

    def items(self):
        return zip(self.index, self.values, strict=True)

    def __iter__(self):
        return iter(self.values)


def test_texts_are_named_by_their_index_and_otherwise_differ():
    lm = language_model("ccdclm")

    def names(texts):
        return [document.id for document in lm.documents(texts)]

    texts = ["the cat", "it\n\nslept .", "the cat"]
    assert names(texts) == ["0", "1:1", "1:3", "2"]
    assert names(Series(["a", 7, "c"], texts)) == ["a", "7:1", "7:3", "c"]
    assert names(dict(zip("abc", texts, strict=True))) == ["a", "b:1", "b:3", "c"]
    assert len({*names("the cat"), *names("the cat"), *names(texts[1])}) == 4
    with pytest.raises(InputError, match="two documents are named 'a'; give each text its own"):
        names(Series("aba", texts))
    with pytest.raises(InputError, match="^text 'b' is 3; expected a string$"):
        names(Series("ab", ["the cat", 3]))
    with pytest.raises(InputError, match="expected a string, or several strings without a name"):
        lm.documents(texts, name="a")


def test_documents_of_equal_names_in_one_call_are_warned_of(warns):
    """The documents of two lists of texts are both named 0, 1, ..."""
    lm = language_model("ccdclm")
    first, second = lm.documents(["the cat", "it sat"]), lm.documents(["dogs", "it slept", "cat"])
    message = "documents with the name of an earlier document: 2, such as '0'; sums by document mix"
    with warns(message):
        assert [score.id for score in lm.score(first + second)] == ["0", "1", "0", "1", "2"]
    with warns(message):
        lm.surprisals(first + second)
    with warns(message):
        list(lm.vectors(first + second))
    assert len(list(lm.score([["the cat"], ["the cat"]]))) == 2


class MissingValue:
    """pandas.NA: its comparisons are neither true nor false."""

    def __repr__(self):
        return "<NA>"

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def test_missing_values_are_documents_without_words_as_in_tables(tmp_path, warns, caplog):
    """As `pandas.read_csv` reads them. None is a word, and so is NA within a text."""
    lm = language_model("ccdclm")
    missing = ["", " ", "NA", "NaN", "null", math.nan, None, MissingValue()]
    texts = ["the cat", "None", "NA sat ."]
    with warns("texts without words \\(empty, NA, NaN, None and similar\\): 8, such as 0;"):
        documents = lm.documents([*missing, *texts])
    assert [len(document.sentences) for document in documents] == [0] * 8 + [1] * 3
    assert [document.id for document in documents] == [str(number) for number in range(11)]
    with pytest.raises(InputError, match="no text of the texts has words"):
        lm.documents(missing)
    path = tmp_path / "texts.csv"
    rows = ["" if value is None else str(value) for value in [*missing, *texts]]
    path.write_text("text\n" + "".join(f'"{row}"\n' for row in rows))
    read = list(read_documents(path, TextOptions(format="prose"), keep_empty=True))
    assert [len(document.sentences) for document in read] == [0] * 8 + [1] * 3
    assert "rows whose text is NA, NaN, null or another missing value: 5, such as" in caplog.text
    # Each row is a word of a text.
    path.write_text("story,text\na,The\na,NA\na,null\n")
    (story,) = read_documents(path, TextOptions(format="prose"), joined_by=["story"])
    assert story.sentences == [["The", "NA", "null"]]


def test_a_string_has_no_tags_though_the_training_text_had():
    tagged = TrainingText(TextOptions("tagged", lowercase=True))
    lm = changed(language_model("ccdclm"), text=tagged)
    (document,) = lm.documents("The cat\nsat .")
    assert document.sentences == [["the", "cat"], ["sat", "."]]
    first, second = lm.documents("The cat\n\nsat .", name="a")
    assert (first.id, second.id) == ("a:1", "a:3")
    (only,) = lm.documents("The cat", name="r0")
    assert only.id == "r0"
    (document,) = lm.documents("The/AT cat/NN", TextOptions("tagged"))
    assert document.sentences == [["The", "cat"]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda lm: lm.read([]).generate("2"), "num_sentences is '2'; expected a whole"),
        (lambda lm: lm.read([]).generate(2, "beam"), "decoding is 'beam'; expected a Decoding"),
        (lambda lm: [*lm.score("The cat.")], "(for raw text: score(documents(text)))"),
        (lambda lm: lm.perplexity("The cat."), "documents are 'The cat.'; expected a list of"),
        (lambda lm: lm.read("the cat ."), 'sentences, such as ["a sentence .", "another one ."]'),
        (lambda lm: [*lm.score([[[3, 4]]])], "a word is 3; expected a string without white space"),
        (lambda lm: lm.read(["the ."]).read("it ."), "expected a list of sentences, such as"),
        (lambda lm: [*lm.score([3])], "a document is 3; expected a list of sentences"),
        (lambda lm: lm.order([[], []]), "there are no words to put in order; pass a sentence with"),
        (lambda lm: lm.read().score("the cat"), "the candidates are 'the cat'; expected a list"),
        (lambda lm: lm.read().next_words(k=0), "k is 0; expected at least 1"),
        (lambda lm: lm.read().generate(seed=-1), "seed is -1; expected a whole number from 0"),
        (lambda lm: lm.read().generate(seed=1.5), "seed is 1.5; expected a whole number from 0"),
        (lambda lm: list(lm.generate([], samples=0)), "samples is 0; expected at least 1"),
        (lambda lm: lm.read().vector, "rnnlm has no context; choose a model with context"),
        (lambda lm: [*lm.vectors([TEXT])], "rnnlm has no context; choose a model with context"),
        (lambda lm: dclm_jax.restore("nowhere", batch_size=0), "batch_size is 0; expected at le"),
        (lambda lm: dclm_jax.mix(lm, lm), "needs either a weight or documents to"),
        (lambda lm: dclm_jax.mix(lm, lm, 0.5, tune_on=[]), "needs either a weight or"),
        (lambda lm: dclm_jax.mix(lm, lm, 1.5), "the weight of a mixture is 1.5; expected a number"),
        (lambda lm: dclm_jax.mix(lm, lm, float("nan")), "the weight of a mixture is nan"),
        (lambda lm: lm.documents("", name="text"), "text: has no documents"),
        (lambda lm: lm.documents(3), "text is 3; expected a string"),
        (lambda lm: lm.documents("\ud800", name="text"), "text has half of a surrogate pair"),
        (lambda lm: lm.attention([]), "rnnlm has no attention to earlier sentences"),
        (
            lambda lm: [*language_model("standard_autoencoder").score([], no_context_too=True)],
            "standard_autoencoder is an autoencoder, whose sentences have no score without a sou",
        ),
        (lambda lm: lm.surprisals(None), "documents are None; expected a list of docu"),
        (
            lambda lm: language_model("standard_autoencoder").read([]),
            "the source has no words; pass a source with words",
        ),
    ],
)
def test_input_of_another_kind_is_refused_with_the_right_call(call: Any, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call(language_model("rnnlm"))


@pytest.mark.parametrize("name", ["ccdclm", "standard_autoencoder"])
def test_a_copy_in_another_process_scores_alike(name):
    lm = language_model(name)
    expected = list(lm.score([TEXT]))
    assert list(pickle.loads(pickle.dumps(lm)).score([TEXT])) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda lm, run: dclm_jax.mix(lm, language_model("rnnlm"), 0.5),
        lambda lm, run: adapt(lm, "cache", weight=0.2, theta=0.1, strength=1.0),
        lambda lm, run: adapt(dclm_jax.restore(run), "dynamic", rate=0.001, decay=0.1),
    ],
    ids=["mixture", "cache", "dynamic"],
)
def test_a_copy_of_a_model_that_only_scores_scores_alike(make, uninterrupted, caplog):
    lm = make(language_model("ccdclm"), uninterrupted)
    before, expected = pickle.dumps(lm), list(lm.score([TEXT]))
    for copy in (before, pickle.dumps(lm)):
        assert list(pickle.loads(copy).score([TEXT])) == expected


def test_a_pattern_omits_models_that_need_a_source(uninterrupted, tmp_path, caplog):
    shutil.copytree(uninterrupted, tmp_path / "a")
    lm = language_model("standard_autoencoder")
    config = {"model": {"name": lm.facts.name}, "data": {}, "training": {}}
    sizes = {"embedding_dim": 4, "hidden_dim": 4, "num_layers": 1, "cell": "lstm"}
    config["model"] |= {name: getattr(lm.model, name) for name in sizes}
    changed(lm, config=config).save(tmp_path / "b")
    pattern = [f"{tmp_path}/*"]
    (kept,) = runs.restore_all(pattern, dclm_jax.LanguageModel, without_source=True).values()
    assert kept.facts.name == "ccdclm"
    assert "b is an autoencoder, whose documents have no probability" in caplog.text
    with pytest.raises(InputError, match="is an autoencoder"):
        dclm_jax.restore(tmp_path / "b", dclm_jax.LanguageModel, without_source=True)


def test_restore_returns_the_expected_kind_or_refuses(uninterrupted):
    assert isinstance(dclm_jax.restore(uninterrupted), dclm_jax.NeuralLanguageModel)
    assert isinstance(
        dclm_jax.restore(uninterrupted, dclm_jax.LanguageModel), dclm_jax.LanguageModel
    )
    message = "contains the model ccdclm; choose a workdir that contains an autoencoder$"
    with pytest.raises(InputError, match=message):
        dclm_jax.restore(uninterrupted, dclm_jax.Autoencoder)


@pytest.mark.parametrize(
    "call",
    [
        lambda lm: list(lm.score([["The cat sat."]])),
        lambda lm: lm.surprisals([["The cat sat."]]),
        lambda lm: lm.perplexity([["The cat sat."]]),
        lambda lm: list(lm.score(lm.documents("The cat sat."))),
        lambda lm: lm.read(["The cat sat."]),
        lambda lm: lm.read().score(["The cat sat."]),
        lambda lm: lm.read().next_words("The cat sat."),
        lambda lm: lm.order(["The cat sat.", "it"]),
        lambda lm: list(lm.generate([["The cat sat."]], max_sentence_words=2)),
        lambda lm: list(lm.generate([["it"]], prefix="The cat sat.", max_sentence_words=4)),
        lambda lm: list(minimal_pairs(lm, [["The cat sat.", "it"]])),
    ],
)
def test_many_words_outside_the_vocabulary_are_named(call, warns):
    """A model whose own text has few, given raw text as if its words were divided."""
    text = TrainingText(oov_rates={"test": 0.1})
    lm = changed(language_model("ccdclm"), text=text)
    with warns(r"% of the words are out of voc.*OOV words: The 1, sat\. 1;"):
        call(lm)


def test_a_run_of_an_earlier_version_is_refused_in_one_line(uninterrupted, tmp_path):
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    text = run / "text.json"
    text.write_text(re.sub('"format": "[a-z]+"', '"format": "auto"', text.read_text()))
    with pytest.raises(InputError, match="text.json: options.format is 'auto'.*; train again by"):
        dclm_jax.restore(run)


def test_a_run_with_a_text_option_of_a_later_version_is_refused(uninterrupted, tmp_path):
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    text = json.loads((run / "text.json").read_text())
    (run / "text.json").write_text(json.dumps(text | {"options": {"stem": True}}))
    with pytest.raises(
        InputError, match="text.json: options has 'stem', which this version does not"
    ):
        dclm_jax.restore(run)


def test_an_installation_without_pretrained_models_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(workdir, "_PRETRAINED", tmp_path / "package.zip")
    with pytest.raises(InputError, match=r"pretrained model \(.*package.zip has none: install the"):
        dclm_jax.restore("english")


def test_a_run_with_another_option_of_the_model_is_refused_in_one_line(uninterrupted, tmp_path):
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    config = run / "config.json"
    config.write_text(config.read_text().replace('"hidden_dim"', '"hidden_size"'))
    with pytest.raises(
        InputError, match="config.json: model .* has no option 'hidden_size'.*; train"
    ):
        dclm_jax.restore(run)


def test_oov_words_of_a_text_are_counted_and_known_words_found():
    lm = language_model("ccdclm")
    assert lm.oov_words([TEXT, ["unheard it", ["unheard", "words"]]]) == {"unheard": 2, "words": 1}
    assert "it" in lm.vocabulary and "unheard" not in lm.vocabulary
