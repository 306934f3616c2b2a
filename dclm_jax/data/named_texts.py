"""Documents from strings, such as the texts of a table in Python."""

import itertools
from collections.abc import Iterable
from typing import Any

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import parse_documents
from dclm_jax.errors import InputError, brief
from dclm_jax.log import logger
from dclm_jax.tables import has_text

_TEXTS = itertools.count(1)
"""Numbers of texts without a name."""


def named_documents(
    text: str | Iterable[str], options: TextOptions, name: str | None = None
) -> list[Document]:
    """The documents in a text or in several texts; `LanguageModel.documents` has the arguments."""
    if isinstance(text, str):
        texts: Iterable[Any] = [(name or f"text{next(_TEXTS)}", text)]
    elif name is None and isinstance(text, Iterable):
        items = getattr(text, "items", None)
        texts = items() if items else enumerate(text)
    else:
        raise InputError(
            f"text is {brief(text)}; expected a string, or several strings without a name"
        )
    documents: dict[str, Document] = {}
    empty = []
    for key, string in texts:
        if not (isinstance(text, str) or has_text(string)):
            empty.append(key)
            parsed = [Document(str(key), [])]
        elif isinstance(string, str):
            parsed = parse_documents(string, options, str(key))
            empty += [key] * (not any(document.sentences for document in parsed))
        else:
            raise InputError(f"text {brief(key)} is {brief(string)}; expected a string")
        for document in parsed:
            if document.id in documents:
                raise InputError(
                    f"two documents are named {brief(document.id)}; give each text its own name"
                )
            documents[document.id] = document
    if documents and len(empty) == len(documents):
        raise InputError("no text of the texts has words; expected text")
    if empty:
        logger.warning(
            f"texts without words (empty, NA, NaN, None and similar): {len(empty):,}, such as "
            f"{brief(empty[0])}; their documents have no words"
        )
    return list(documents.values())
