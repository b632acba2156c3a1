"""Write a tiny checkpoint in the layout of BERT's releases; needs TensorFlow, see README.md.

The tables are those of NumPy's generator, so that the tests can make them again.
"""

import sys

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]

TENSORS = {
    "bert/embeddings/LayerNorm/beta": (8,),
    "bert/embeddings/LayerNorm/gamma": (8,),
    "bert/embeddings/position_embeddings": (16, 8),
    "bert/embeddings/token_type_embeddings": (2, 8),
    "bert/embeddings/word_embeddings": (30, 8),
    "bert/encoder/layer_0/attention/self/query/kernel": (8, 8),
    "bert/pooler/dense/bias": (8,),
}

rng = np.random.default_rng(0)
values = {
    name: rng.standard_normal(shape).astype(np.float32) for name, shape in TENSORS.items()
}
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variables = [
        tf.compat.v1.get_variable(name, initializer=v) for name, v in values.items()
    ]
    half = tf.compat.v1.get_variable("half", initializer=np.arange(6, dtype=np.float16))
    step = tf.compat.v1.get_variable("global_step", initializer=np.int64(7))
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver([*variables, half, step])
    saver.save(session, f"{sys.argv[1]}/bert_model.ckpt", write_meta_graph=False)
