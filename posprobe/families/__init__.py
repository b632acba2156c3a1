"""A checkpoint becomes tables of positions: which tensors, which rows, what layout."""

from posprobe.families.architectures import Family as Family, TableRule as TableRule
from posprobe.families.find import (
    StoredEncoding as StoredEncoding,
    find_encodings as find_encodings,
)
from posprobe.families.read import (
    choose_table as choose_table,
    inspect as inspect,
    load as load,
    load_schemes as load_schemes,
    open_reference as open_reference,
    read_table as read_table,
)
from posprobe.families.tokens import (
    TokenSample as TokenSample,
    load_tokens as load_tokens,
)
