"""The public names, each once: type checkers and the lazy loader read them here."""

from .bundle import (
    bundle_name as bundle_name,
    check_place as check_place,
    default_place as default_place,
    forward_name as forward_name,
    render_bundle as render_bundle,
    sources_of as sources_of,
    table_path as table_path,
    to_json as to_json,
    write_bundle as write_bundle,
    write_table as write_table,
)
from .files import (
    read_bundle as read_bundle,
)
