"""Small pure functions that models are made of.

Shape legend, one letter an axis: B documents in a batch, S sentences of a document, N token
positions of a sentence, K word embedding, H hidden state, V vocabulary, A attention, D feature
entering the output layer, G gates of a cell, F flattened token positions, M remembered positions.
"""
