"""All tests of coherence of a model: `coherence`, and what is asked for wrongly."""

import pytest

from dclm_jax.coherence import measure
from dclm_jax.coherence.compare import Fixed, Insert, compare_orders
from dclm_jax.coherence.measure import CoherenceOptions, CoherenceResults, coherence
from dclm_jax.coherence.results import DocumentOutcome, OrderResult
from dclm_jax.errors import InputError
from tests.test_read_document import language_model

TEXTS = [["a cat sat .", "it slept .", "", "dogs bark ."], ["dogs bark .", "it slept ."], ["it ."]]


@pytest.mark.filterwarnings("ignore:sentences without words")
def test_coherence_in_python(caplog):
    lm = language_model("ccdclm")
    results = coherence(lm, TEXTS, permutations=4, extra_tests=["insertion", "blocks"])
    documents = [lm.encode(text) for text in TEXTS]
    expected = compare_orders(lm.scorer, documents, Fixed(permutations=4)).result
    value = results.to_json()
    assert {key: value[key] for key in ("mean", "sd", "omitted")} == {
        key: getattr(expected, key) for key in ("mean", "sd", "omitted")
    }
    inserted = compare_orders(lm.scorer, documents, Insert()).result
    assert value["insertion"]["accuracy"] == inserted.accuracy
    assert [result["block"] for result in value["blocks"]] == [2]
    assert [shuffle.name for shuffle in results.too_short] == ["blocks of 4", "blocks of 8"]
    assert str(results).startswith(str(expected))
    assert "with only the first sentence moved" in str(results)


@pytest.mark.filterwarnings("ignore:sentences without words")
def test_tables_name_the_kind_of_result_if_there_are_two(caplog):
    for kinds, names in (({"bootstrap": 3}, [" (bootstrap)", " (fixed)"]), ({}, [""])):
        results = coherence(language_model("ccdclm"), TEXTS, permutations=4, **kinds)
        both = {"a": results, "b": results}
        rows = [line.split("  ")[0] for line in measure.accuracy_table(both)]
        expected = [f"permutations{name}" for name in names]
        means = [f"{100 * result.mean:.2f}%" for result in results.results("permutations")]
        assert rows[2 : 2 + len(names)] == expected
        assert [line.split()[-1] for line in measure.accuracy_table(both)][
            2 : 2 + len(names)
        ] == means
        _, _, difference, _ = measure.run_difference_table(both, measure.run_differences(both))
        assert difference.split("  ")[0] == expected[-1]


@pytest.mark.parametrize("orders", [1, 20, 1000])
def test_p_is_over_documents_for_any_number_of_orders(orders):
    """One model is right about every order of 5 documents, the other about none: 2 of the 32
    exchanges of their results differ as much."""

    def results(correct: float) -> CoherenceResults:
        documents = [DocumentOutcome(index, orders, correct) for index in range(5)]
        tests = {"permutations": [OrderResult(None, documents)]}
        return CoherenceResults(CoherenceOptions(), tests, first_sentence=None, too_short=[])

    (pair,) = measure.run_differences({"a": results(orders), "b": results(0)})["permutations"]
    assert pair.difference == 1
    assert pair.p == pytest.approx(2 / 32, abs=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permutations": 0}, "permutations and bootstrap are both 0"),
        (
            {"extra_tests": ["blocks", "words"]},
            "extra_tests is words; expected names from blocks, swa",
        ),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=message):
        CoherenceOptions(**options)
