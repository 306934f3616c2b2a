"""Rescoring of N-best lists with document models: lists, search and tuning of weights.

In Python:

    lm, lists = dclm_jax.restore("runs/tour"), nbest.read_nbest("nbest.txt")
    rescorer = search.Rescorer({"tour": lm.reader}, lm.encoder(), lists)
    choices, features = rescorer.decode(rescorer.default_weights)
    best = [s.hypotheses[choice] for s, choice in zip(lists.segments, choices)]
    features[0][:, 0]                   # log P of the first segment's hypotheses under the model
"""
