"""Names of tensors as PyTorch would write them, so that one rule finds a table in every library."""

from __future__ import annotations

import re

#: What other libraries call the one parameter of an embedding.
_WEIGHT = re.compile(r"(?<=\.)(?:embeddings?|weight):0$|(?<=\.)embeddings?$")


def dotted(name: str) -> str:
    """Write a path of Keras, TensorFlow or Flax with dots; other names stay what they are.

    ``bert/embeddings/position_embeddings/embeddings:0`` becomes
    ``bert.embeddings.position_embeddings.weight``, and ``block_._0`` a layer ``block.0``.
    """
    if "/" not in name:
        return name
    plain = name.replace("/", ".").replace("_._", ".")
    return _WEIGHT.sub("weight", plain).removesuffix(":0")
