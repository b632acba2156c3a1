"""The public names, each once: type checkers and the lazy loader read them here."""

from .bundle import (
    bundle_name as bundle_name,
    check_bundle_folder as check_bundle_folder,
    default_folder as default_folder,
    forward_name as forward_name,
    list_sources as list_sources,
    render_bundle as render_bundle,
    resolve_table_path as resolve_table_path,
    to_json as to_json,
    write_bundle as write_bundle,
    write_table as write_table,
)
from .files import (
    read_bundle as read_bundle,
)
