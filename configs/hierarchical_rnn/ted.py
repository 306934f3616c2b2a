"""The hierarchical RNN language model of Lin et al. (2015) on TED talks, as in the paper.

The name of the model follows the name of the file, after a colon, as in ptb.py. IWSLT2014/zh-en is
the folder of a language pair of IWSLT 2014; its English side is read. 90% of the training talks are
the training split, and the other 10% are the validation split. The test split is tst2010 to
tst2012:

    python -m launch.prepare --corpus=ted --input=IWSLT2014/zh-en --output=data/ted
    config=configs/hierarchical_rnn/ted.py
    python -m launch.train --config=$config:rnnslm --workdir=runs/ted/rnnslm \
        --config.data.directory=data/ted
    python -m launch.train --config=$config:hrnnlm_two_step --workdir=runs/ted/two_step \
        --config.data.directory=data/ted \
        --config.training.start_from=runs/ted/rnnslm --config.training.frozen='sentence_*'
    python -m launch.train --config=$config:rnn_lin --workdir=runs/ted/rnn_lin \
        --config.data.directory=data/ted

These commands measure coherence accuracy, also of baselines (section 6.1), and perplexity
(6.2), and rescore the candidates of a translation system, one list per test sentence (6.3):

    for run in rnnslm two_step; do
        python -m launch.coherence --workdir=runs/ted/$run --metrics=runs/ted/$run/coherence.json
    done
    for baseline in maximum_entropy neural; do
        python -m configs.hierarchical_rnn.baselines data/ted $baseline
    done
    python -m launch.evaluate --workdirs=runs/ted/rnn_lin,runs/ted/two_step
    python -m launch.rescore --workdir=runs/ted/two_step --nbest=dev.nbest --documents=dev.docs \
        --references=dev.en --tune --metrics=tuned.json
    python -m launch.rescore --workdir=runs/ted/two_step --nbest=test.nbest --documents=test.docs \
        --references=test.en --weights=tuned.json --output=best.txt

The settings are the settings of ptb.py. This recipe has not been run, because the talks are not
included. configs/hierarchical_rnn/README.md has the results of the paper.
"""

from configs.hierarchical_rnn.ptb import get_config

__all__ = ["get_config"]
