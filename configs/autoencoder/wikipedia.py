"""The autoencoders of Li, Luong and Jurafsky (2015) on Wikipedia, at the paper's size.

The name of the model follows the name of the file, after a colon, as in hotel_reviews.py. The text
has one sentence per line and a blank line between paragraphs. `prepare` retains paragraphs of 50 to
250 words with at most 4% OOV words. The vocabulary has 120,000 words:

    python -m launch.prepare --train=WIKIPEDIA/train.txt --valid=WIKIPEDIA/valid.txt \
        --test=WIKIPEDIA/test.txt --vocab_size=120000 --min_words=50 --max_words=250 \
        --max_unknown=0.04 --output=data/wikipedia
    config=configs/autoencoder/wikipedia.py
    for model in standard hierarchical hierarchical_attention; do
        python -m launch.train --config=$config:${model}_autoencoder \
            --config.data.directory=data/wikipedia --workdir=runs/wikipedia/$model
        python -m launch.evaluate --workdir=runs/wikipedia/$model
    done

The settings are the settings of hotel_reviews.py. This recipe has not been run, because it needs an
accelerator and 500,000 paragraphs.
"""

from configs.autoencoder.hotel_reviews import get_config

__all__ = ["get_config"]
