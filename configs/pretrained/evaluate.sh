#!/usr/bin/env bash
# Measures the pretrained model `english` beside its baseline without context; README.md has the results.
#
#   bash configs/pretrained/evaluate.sh SOURCES BASELINE BLIMP NATURAL_STORIES OUTPUT
#
# SOURCES is the output of configs/pretrained/sources.py, BASELINE the workdir of rnnlm, BLIMP a folder of
# BLiMP's JSON lines, and NATURAL_STORIES the folder of configs/reading_times/natural_stories.py.
set -euo pipefail
sources=$1 baseline=$2 blimp=$3 stories=$4 output=$5
mkdir -p "$output"

for source in sotu wikitext film_reviews; do
  python -m launch.prepare --valid="$sources/valid-$source.jsonl" --test="$sources/test-$source.jsonl" \
    --vocabulary=dclm_jax/pretrained/english/vocabulary.tsv --lowercase --normalize --unicode=nfc \
    --unknown_token='<unk>' --output="$output/data/$source"
  python -m launch.report --workdirs="english,$baseline" --measure --data="$output/data/$source" \
    --output="$output/$source" --bootstrap=100 --permutation_pool=2
done

# Select the pairs without OOV words.
cat "$blimp"/*.jsonl >"$output/blimp.jsonl"
python - "$output/blimp.jsonl" "$output/known.jsonl" <<'END'
import json
import sys

import dclm_jax
from dclm_jax.data.vocabulary import UNKNOWN

lm = dclm_jax.restore("english")


def is_known(line: str) -> bool:
    pair = json.loads(line)
    (document,) = lm.documents(f"{pair['sentence_good']} {pair['sentence_bad']}")
    return not any(UNKNOWN in ids for ids in lm.encode(document))


with open(sys.argv[1]) as source, open(sys.argv[2], "w") as target:
    target.writelines(filter(is_known, source))
END
python -m launch.minimal_pairs --workdirs="english,$baseline" --input="$output/known.jsonl" --by=UID \
  --metrics="$output/blimp.json"

python -m configs.reading_times.natural_stories "$stories" "$output/times.tsv"
python -m launch.reading_times --workdirs="english,$baseline" --input="$output/times.tsv" --text_key=word \
  --story=item --time=meanItemRT --predictors=gpt3 --metrics="$output/reading_times.json"
