"""How two encodings of position are related: one engine for `check` and for `nearest`."""

from posprobe.relations.ladders import Ladder as Ladder, relate_ladders as relate_ladders
from posprobe.relations.rules import (
    RULES as RULES,
    Finding as Finding,
    NotCompared as NotCompared,
    Rule as Rule,
)
from posprobe.relations.tables import relate_tables as relate_tables
from posprobe.relations.values import (
    relate_biases as relate_biases,
    relate_slopes as relate_slopes,
)
from posprobe.relations.weights import (
    Projections as Projections,
    relate_layer as relate_layer,
    relate_layouts as relate_layouts,
)
