"""Adds parts of speech to a text by HanTa: writes tokens word/TAG, which the format `tagged` reads.

    pip install HanTa
    python -m launch.prepare --show=data/film --split=test > test.txt
    python -m configs.larger_context.tag test.txt test.tagged
    python -m launch.evaluate --workdirs=$runs --input=test.tagged --format=tagged --by_pos

The text has one tokenized sentence per line and a blank line after each document, or is in JSON
lines with "sentences", such as the output of launch.reconstruct.

HanTa's English tags are converted to tags of the Penn Treebank, except tags of punctuation, ZZ0 (a
single letter) and UNC (unclassified: placeholders such as <unk>, and signs that are not words). For
German (--language=de) and Dutch (--language=nl) the tags are HanTa's own.
"""

import argparse
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from dclm_jax.data.readers import read_documents
from dclm_jax.errors import InputError
from dclm_jax.files import open_output

MODELS = {"en": "morphmodel_en.pgz", "de": "morphmodel_ger.pgz", "nl": "morphmodel_dutch.pgz"}
"""HanTa's files by language."""
# The Treebank's tags by the BNC's tags. PRP is a preposition in the BNC, a pronoun in the Treebank.
TREEBANK_TAGS = {
    **{"AJ0": "JJ", "AJC": "JJR", "AJS": "JJS", "ORD": "JJ"},
    **{"AT0": "DT", "DT0": "DT", "DTQ": "WDT", "DPS": "PRP$", "EX0": "EX"},
    **{"AV0": "RB", "AVP": "RP", "AVQ": "WRB", "XX0": "RB"},
    **{"CJC": "CC", "CJS": "IN", "CJT": "IN", "PRF": "IN", "PRP": "IN", "TO0": "TO"},
    **{"CRD": "CD", "ITJ": "UH", "POS": "POS", "VM0": "MD"},
    **{"NN0": "NN", "NN1": "NN", "NN2": "NNS", "NP0": "NNP"},
    **{"PNI": "NN", "PNP": "PRP", "PNQ": "WP", "PNX": "PRP"},
    **{f"V{verb}B": "VBP" for verb in "BDHV"},
    **{f"V{verb}I": "VB" for verb in "BDHV"},
    **{f"V{verb}{form}": f"VB{form}" for verb in "BDHV" for form in "DGNZ"},
    "!!!": "UNC",
}
# The time for a word grows with the square of its length; its ending determines its tag.
MAX_LETTERS = 40
# Text in lower case may write N for any number, as does the Penn Treebank of language modelling.
NUMBER_MARK, NUMBER = "N", "1"
# A placeholder for a word, such as <unk>, has no part of speech.
MARK = re.compile(r"<[^<>]+>")


class Tagger:
    """HanTa's parts of speech in a language of MODELS."""

    def __init__(self, language: str = "en"):
        try:
            from HanTa import HanoverTagger
        except ImportError as error:
            raise InputError("tagging needs HanTa: pip install HanTa") from error
        # HanTa unpickles its file, and looks for a bare name in the working directory first.
        model = pathlib.Path(HanoverTagger.__file__).with_name(MODELS[language])
        self._tag_sentence: Any = HanoverTagger.HanoverTagger(str(model)).tag_sent
        self._conversion = TREEBANK_TAGS if language == "en" else {}

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tag of every word of a document, one list per sentence."""
        # Lower case is evidence against a name, except in text that is all in lower case.
        has_case = any(
            word[:1].isupper() and len(word) > 1 for words in sentences for word in words
        )
        tagged = []
        for words in sentences:
            endings = [word[-MAX_LETTERS:] for word in words]
            if not has_case:
                endings = [NUMBER if word == NUMBER_MARK else word for word in endings]
            tags = self._tag_sentence(endings, taglevel=0, casesensitive=has_case)
            tagged.append(list(map(self._tag, words, tags)))
        return tagged

    def _tag(self, word: str, tag: str) -> str:
        tag = self._conversion.get(tag, tag)
        # HanTa gives unknown signs the tag of a noun or name.
        is_sign = tag in ("NN", "NNP") and not any(map(str.isalnum, word))
        return "UNC" if is_sign or MARK.fullmatch(word) else tag


def main(text: str, output: str, language: str) -> None:
    tagger, count = Tagger(language), 0
    with open_output(output) as file:
        for document in read_documents(text, keep_empty=True):
            if not document.sentences:
                raise InputError(
                    f"{text}: document {document.id} has no words, and tagged text cannot contain "
                    "it; remove the document"
                )
            file.write("\n" * (count > 0))
            for words, tags in zip(document.sentences, tagger(document.sentences), strict=True):
                file.write(" ".join(map("{}/{}".format, words, tags)) + "\n")
            count += 1
    print(f"{output}: {count:,} documents")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", help="text to tag")
    parser.add_argument("output", help="file for the tagged text")
    parser.add_argument("--language", choices=MODELS, default="en", help="language of the text")
    arguments = parser.parse_args()
    try:
        main(arguments.text, arguments.output, arguments.language)
    except InputError as error:
        parser.error(str(error))
