#!/usr/bin/env bash
# Measures the pretrained models; README.md has the results.
#
#   bash configs/pretrained/evaluate.sh SOURCES BLIMP NATURAL_STORIES OUTPUT
#
# SOURCES is the output of configs/pretrained/sources.py, BLIMP is a folder of BLiMP's JSON lines, and
# NATURAL_STORIES is the folder that configs/reading_times/natural_stories.py reads.
set -euo pipefail
sources=$1 blimp=$2 stories=$3 output=$4
runs=english,english_sentences
text_flags="--vocabulary=english --lowercase --normalize --unicode=nfc --unknown_token=<unk>"
mkdir -p "$output"

python -m launch.score --workdir=english --input=configs/pretrained/items.csv --join_rows=item,condition --item=item \
  --other_contexts=10 --no_context_too --by=item,condition,region --output="$output/items.tsv"
python - "$output/items.tsv" "$output/items.json" <<'END'
import json
import sys

import pandas as pd

table = pd.read_csv(sys.argv[1], sep="\t")
columns = ["item", "surprisal", "surprisal_other_context", "surprisal_no_context"]
targets = table[table.region == "target"].groupby("condition")[columns]
result = {condition: rows.to_dict("records") for condition, rows in targets}
with open(sys.argv[2], "w") as file:
    json.dump(result, file, indent=2)
END
cat "$blimp"/*.jsonl >"$output/blimp.jsonl"
python -m launch.minimal_pairs --workdirs=$runs --input="$output/blimp.jsonl" --by=UID --metrics="$output/blimp.json"
python -m configs.reading_times.natural_stories "$stories" "$output/times.tsv"
python -m launch.reading_times --workdirs=$runs --input="$output/times.tsv" --text_key=word \
  --story=item --time=meanItemRT --predictors=gpt3 --metrics="$output/reading_times.json"

for source in sotu film_reviews wikitext; do
  python -m launch.prepare --valid="$sources/valid-$source.jsonl" --test="$sources/test-$source.jsonl" $text_flags \
    --output="$output/data/$source"
  python -m launch.report --workdirs=$runs --measure --data="$output/data/$source" \
    --output="$output/$source" --bootstrap=100 --permutation_pool=2
done

# These passages are as long as news articles. The Brown corpus is no source of the training text.
head -n 10 "$sources/test-brown.jsonl" >"$output/brown.jsonl"
python -m launch.prepare --test="$output/brown.jsonl" $text_flags --split_documents_at=250 --output="$output/data/brown"
python -m launch.coherence --workdir=english --data="$output/data/brown" --permutations=8 --metrics="$output/brown.json"
