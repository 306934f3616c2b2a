"""Links between documents lead to files and headings that exist, and messages are the programs'."""

import re

import pytest

from tests.launch.support import REPOSITORY

DOCUMENTS = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder in ("", "launch/**/", "configs/**/", "dclm_jax/**/")
    for path in REPOSITORY.glob(f"{folder}*.md")
)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(document: str, text: str) -> list[str]:
    """The links of a document to files or headings that do not exist; addresses are left out."""
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (REPOSITORY / document).parent / path if path else REPOSITORY / document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            dead.append(link)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    assert dead_links(document, (REPOSITORY / document).read_text()) == []


def test_a_dead_link_is_found():
    text = "[a](#exit-codes) [b](#absent) [c](../README.md#absent) [d](absent.md) [e](text.md)"
    assert dead_links("launch/README.md", text) == ["#absent", "../README.md#absent", "absent.md"]


def test_messages_of_the_troubleshooting_table_exist():
    manual = (REPOSITORY / "launch/README.md").read_text()
    rows = manual.partition("## Troubleshooting")[2].splitlines()
    messages = re.findall(r"^\| `(.+?)`", "\n".join(rows), re.MULTILINE)
    folders = (REPOSITORY / name for name in ("dclm_jax", "launch"))
    code = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    parts = [part.strip() for message in messages for part in re.split(r"\.\.\.|RUN", message)]
    assert len(messages) > 5
    assert [part for part in parts if part not in code] == []
