"""N-best lists rescored by models of documents: lists, search, metrics and tuned weights.

In Python:

    lm, lists = dclm_jax.restore("runs/tour"), nbest.read_nbest("nbest.txt")
    rescorer = search.Rescorer({"tour": lm.reader}, lm.vocabulary, lists)
    choices, features = rescorer.decode(rescorer.default_weights)
    best = [s.hypotheses[choice] for s, choice in zip(lists.segments, choices)]
    lines = rescorer.scored_lines(features)                 # the list with log P as feature "tour"
"""
