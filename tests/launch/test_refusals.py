"""Flags that commands refuse in one line: one row per kind of check, and those of one command."""

import shlex
from pathlib import Path

import pytest

from tests.launch.support import fingerprint, launch

FILES = {
    "blank.txt": "\n= heading =\n\n",
    "single.txt": "w1 w3\n\nw2 w3\n",
    "lines.txt": "w2 w1 .\n\nw4\n",
    "nbest.txt": "0 ||| w1 ||| ||| 1.0\n",
    "references.txt": "w1\n",
    "weights.json": '{"weights": {"ccdclm": 1}}',
    "zero.json": '{"weights": {"ccdclm": 0, "score": 0, "words": 0, "oov": 0}}',
    "none.jsonl": '{"id": "a", "sentences": []}\n',
    "out.jsonl": '{"id": "a", "sentences": ["w1"]}\n{"id": "b", "sentences": []}\n',
    "regions.csv": "item,condition,region,text\n1,a,subject,w1 w2\n1,b,verb,w6 w7\n",
    "word.csv": "id,word,text\na,w1,w1 w2\n",
    "pairs.jsonl": '{"good": "w1 w2", "bad": "w1 w3", "context": "w4"}\n',
    "taken.jsonl": '{"good": "w1 w2", "bad": "w1 w3", "targets_bad:rnnlm": 1}\n',
    "times.csv": "story,text,time,length\na,w1 w2,3,1\na,w3,4,1\nb,w1,5,2\nb,w2,6,2\n",
    "raises.py": "from dclm_jax.training.config import default_config\n\n"
    "def get_config():\n    config = default_config()\n    return config.training.max_step\n",
    "syntax.py": "x = (1\n",
    "named.py": "def get_config(size):\n    return {'small': 1}[size]\n",
}
"""Files in the folder that commands run in, beside links to the corpora and runs of `space`."""

CONFIG = "train --workdir=new --config"
TRAIN = f"{CONFIG}=tiny.py --config.data.directory=corpus"
PLAN = "plan --config=tiny.py:rnnlm --target=h100"
COHERENCE = "coherence --workdir=run"
ADAPT = "evaluate --workdir=run --adapt"
SET = "--cache_weight=0.3 --cache_theta=0.5 --cache_strength=5"
BOTH = "evaluate --workdirs=run,rnnlm"
REPORT = "report --output=new --workdirs=run"
RESCORE = "rescore --workdir=run --nbest=nbest.txt --output=new"
PAIRS = "minimal_pairs --workdir=run --output=new.tsv --alternatives=good,bad --input"
REGIONS = "score --workdir=run --format=csv --output=new.tsv --input=regions.csv --join_rows=item"
PREPARE = "prepare --output=new --train=lines.txt"

REFUSALS = f"""
evaluate --input=lines.txt => --workdir is missing
evaluate --workdir=corpus => corpus has no run
evaluate --workdir=run stray => unexpected argument 'stray'; flags are written --name=value (see --h
evaluate --workdir=run --splt=test => splt
evaluate --flagfile=marked.flags --workdir=run => the file of --flagfile begins with a byte order \
mark, before '--split=test'; save it as UTF-8 without this mark
evaluate --flagfile=utf16.flags --workdir=run => the file of --flagfile is not UTF-8 (
evaluate --workdir=run --split=tset => --split=tset
evaluate --workdir=run --input=lines.txt --data=corpus --adapt=foo => --adapt=foo is unknown; choos
score --workdir=nowhere --output=new.csv => --output is new.csv; this file is not CSV
prepare --output=new --corpus= --train=lines.txt => the name of an input is empty
reconstruct --outputs=lines.txt --input=lines.txt --split=valid => --split has no effect without --w
reconstruct --outputs=lines.txt --format=prose => --input is missing
evaluate --workdir=run --metrics=- --by_pos --plot=- => --metrics and --plot are both standard outp
evaluate --workdir=run --metrics=blank.txt/x.json => blank.txt/x.json: cannot be written: File exist
evaluate --workdir=run --data=other_corpus => different vocabularies
evaluate --workdir=run --process_id=0 => only some of coordinator_address
evaluate --workdir=run --coordinator_address=localhost --num_processes=2 --process_id=0 => \
coordinator_address is 'localhost'; expected HOST:PORT
evaluate --workdir=run --coordinator_address=localhost:1 --num_processes=2 --process_id=2 => \
process_id is 2 of 2 processes
evaluate --workdirs=run,other_run => other_run (53 entries, fingerprint
evaluate --workdirs=run,run => names run twice
evaluate --workdirs=run, => --workdirs has an empty name
{BOTH} --by_pos --plot=a.xyz => a.xyz: cannot write the figure
evaluate --workdirs=run,rnnlm,seed --interpolate => --interpolate mixes two runs; found 3
{BOTH} --interpolate --split=valid => tuned on the measured split, valid
{ADAPT}= => --adapt is empty; choose from cache, unigram, dynamic
{ADAPT}=cache,unigram,cache => --adapt=cache,unigram,cache repeats a name
evaluate --workdir=run --cache_window=9 => --cache_window has no effect without --adapt=cache; add
{ADAPT}=cache --split=valid => cache would be tuned on the measured split
{ADAPT}=cache --interpolate => --interpolate cannot be used with --adapt

{COHERENCE} --workdirs=a,b => --workdir cannot be used with --workdirs
coherence --workdir=autoencoder => autoencoder is an autoencoder, whose documents have no probabil

generate --workdir=run --context=blank.txt => blank.txt: has no documents
generate --workdir=run --beam=3 => --beam has no effect without --method=beam; add

{PAIRS}=pairs.jsonl --alternatives=good,c => no column 'c'; choose from: 'good', 'bad'
{PAIRS}=pairs.jsonl --output=a.html => --output is a.html; this file is not HTML: use the extension
{PAIRS}=pairs.jsonl --alternatives=good => --alternatives=good: name two or more columns
{PAIRS}=pairs.jsonl --by=good => pairs.jsonl:1: --by names 'good', which is no column of the pair
{PAIRS}=- => neither a table nor JSON lines by its name; add --format=jsonl, csv or tsv
{PAIRS}=taken.jsonl => taken.jsonl:1: the column 'targets_bad:rnnlm' of the inp

ngram --data=corpus --workdir=run => \
a different run (model.name: 'ccdclm' saved, 'ngram' given; 1 more
ngram --data=corpus --workdir=gs://bucket/run => gs://bucket/run: KenLM needs a local disk

order --workdir=run --batch_size=2 => Unknown command line flag 'batch_size'
order --workdir=run --seed=-1 => --seed=-1: -1 is not a non-negative integer
order --workdir=run --noshuffle --metrics=m => --metrics has no effect
order --workdir=run --input=single.txt => no document has two or more sentences

{PLAN} --shape=4,0,8 --vocab_size=50 => --shape=4,0,8; expected SEGMENTS,SENTENCES,TOKENS, all above
{PLAN} --shape=4,2,8 => --vocab_size is missing; add --vocab_size=N to --shape
plan --config=tiny.py:rnnlm => --target is missing; add --target=h100
{PLAN} --vocab_size=50 => --vocab_size has no effect without --shape; give both or neither

prepare --train=lines.txt => --output is missing
prepare --show=corpus --overwrite => --overwrite cannot be used with --show; remove
prepare --output=new => no text is named; add --input, or any of --train, --valid and --test, or --c
{PREPARE} --vocab_size=many => --vocab_size=many
{PREPARE} --split=1,0,0 => inputs of given splits take no split
{PREPARE} --input=lines.txt => the inputs are --train and --input
{PREPARE} --normalize => normalize has no effect on text that is read
{PREPARE} --test=- => -: a text to prepare is read twice, and a pipe only once; write
prepare --output=new --input=lines.txt --split=0.5,x => write shares separated by commas
prepare --output=new --corpus=bbc --input=x --train=lines.txt => --train cannot be used with --corp
prepare --output=new --corpus=bbc --input=x --format=prose => format has no effect on text that is

reading_times --workdir=run --input=times.csv --time=ms => \
row 1 of --input: there is no column 'ms'; choose from: 'story', 'time',
reading_times --workdir=run --input=times.csv --predictors=gpt3 => there is no column 'gpt3'
reading_times --workdir=run --input=times.tsv --words=times.tsv => \
--input and --words are both times.tsv; choose two files

reconstruct --workdir=autoencoder --outputs=x => --outputs cannot be used with --workdir; remove
reconstruct --workdir=autoencoder --output=o --input=none.jsonl => a has no words
reconstruct --input=lines.txt => --workdir and --outputs are missing; add --workdir=RUN to
reconstruct --outputs=- --input=- => standard input can be read only once
reconstruct --outputs=out.jsonl --input=lines.txt --max_length_ratio=2 => --max_length_ratio has no

{REPORT} --bootstrap=1 => --bootstrap is 1; choose 0, or 2 or more
{REPORT} --html=run => run'; choose a file to write
{REPORT} --baseline=hrnnlm => --baseline is hrnnlm; choose a run of --workdirs, or one of the model
report --workdirs=*.txt => *.txt matches no run
report --workdirs=autoencoder --output=new => autoencoder is an autoencoder, whose documents have no

{RESCORE} --weights=absent.json => absent.json
{RESCORE} --weights=weights.json => weights.json: has weights of ['ccdclm']; expected ccdclm, 
{RESCORE} --weights=zero.json => zero.json: all weights are 0; write a weight that is not 0
{RESCORE} --viterbi --beam=2 => --beam cannot be used with --viterbi
{RESCORE} --beam=0 => flag --beam=0: 0 is not
{RESCORE} --output=best.json => --output is best.json; this file is not JSON: use the extension
{RESCORE} --tune => --tune has no effect without --references

score --workdir=run --format=lines => --format has no effect without --input; add --input
score --workdir=run --input=a.txt --split=valid => --input replaces --data and --split
score --workdir=run --input=absent.txt => absent.txt: no such file or folder
score --workdir=run --input=lines.txt --output=scores.csv => \
--output is scores.csv; this file is not CSV: use the extension .jsonl or .tsv or .html
coherence --workdir=run --metrics=new.tsv => --metrics is new.tsv; this file is not TSV: use the
minimal_pairs --workdir=run --input=lines.txt --output=new.json => --output is new.json; this file
generate --workdir=run --output=new.TXT => --output is new.TXT; this file is not TXT: use
score --workdir=run --format=csv --input=word.csv --output=new.tsv => \
the column 'word' of the input has the name of a column of the result; rename

train --workdir=none --config.training.epochs=4 => --config is missing, and none has no run
train --workdir=run --config.model.hidden_dim=9 => model.hidden_dim: 8 saved, 9 given
train --workdir=run --config=tiny.py --config.data.directory=other_corpus => \
run has a run whose vocabulary differs from
{TRAIN} --workdir=corpus => corpus is a prepared corpus; ch
{TRAIN} --config.model.hidden_dim=1000000000 => Use a smaller data.batch_size
{TRAIN} --config.data.batch_size=x => --config.data.batch_size=x
{TRAIN} --config.model.hiden_dim=3 => 'model.hiden_dim'; did you mean --config.model.hidden_dim?
{TRAIN} --config.training.steps=3 => 'training.steps'; did you mean --config.training.max_steps?
{TRAIN} --config.max_steps=3 => 'max_steps'; did you mean --config.training.max_steps?
{TRAIN} --config.trainin.epochs=3 => 'trainin.epochs'; did you mean --config.training.epochs?
{TRAIN} --hiden_dim=32 => 'hiden_dim'; did you mean --config.model.hidden_dim?
{TRAIN} --training.epochs=3 => 'training.epochs'; did you mean --config.training.epochs?
{TRAIN} --name=adam => did you mean --config.model.name or --config.optimizer.name?
{TRAIN} --notie_embeddings => 'notie_embeddings'; did you mean --config.model.tie_embeddings?
{TRAIN} --worksdir=1 => flag 'worksdir'. Did you mean: workdir ?
{CONFIG}=tiny.py:ccdcml => 'ccdcml'; did you mean 'ccdclm'
{CONFIG}=raises.py => raises.py:5
{CONFIG}=syntax.py => syntax.py:1
{CONFIG}=absent.py => absent.py
{CONFIG}=named.py => missing 1 required positional argument: 'size'; write the name as
{CONFIG}=tiny.py:hierarchical_attention_autoencoder --config.data.directory=corpus => \
data.segment_length is 5, but hierarchical_attention_autoencoder reads whole documents; set it to 0
"""
"""One command line per line, and a part of the error that it ends in."""


@pytest.fixture(scope="module")
def folder(space, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("refusals")
    for name, content in FILES.items():
        (folder / name).write_text(content)
    (folder / "tiny.py").write_text(space.config.read_text())
    runs = ("run", "rnnlm", "seed", "adclm", "autoencoder", "other_run")
    for name in (*runs, "corpus", "other_corpus"):
        (folder / name).symlink_to(getattr(space, name))
    (folder / "marked.flags").write_text("\ufeff--split=test\n", "utf-8")
    (folder / "utf16.flags").write_text("--split=test\n", "utf-16")
    return folder


def refusals() -> list[tuple[str, str]]:
    lines = filter(None, REFUSALS.splitlines())
    return [(command, message) for command, message in (line.split(" => ") for line in lines)]


def saved(run: Path) -> dict[str, bytes]:
    """The files of a run except its results, which a command may measure before it refuses."""
    return {k: v for k, v in fingerprint(run).items() if not k.startswith("results")}


@pytest.mark.parametrize(("command", "message"), refusals())
def test_one_line_says_what_is_wrong_and_nothing_is_written(space, folder, command, message):
    before = fingerprint(folder), saved(space.run)
    done = launch(*shlex.split(command), code=2, cwd=folder, stdin="w1 w2\n")
    *notes, error = done.stderr.splitlines()
    assert error.startswith("error: ") and message in error
    assert all(note.startswith(("note: ", "warning: ")) for note in notes)
    assert (fingerprint(folder), saved(space.run)) == before
