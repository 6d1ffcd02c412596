"""Corpus readers; what a reader outside icalib needs can be imported from here."""

from icalib.data.schema import AnsweredContext, Dialogue, Pool
from icalib.data.sources.files import first_line, json_members, read_lines
from icalib.data.sources.messages import role_of
from icalib.data.sources.records import Raw, Reader, Source, build, parse_json, records_in

__all__ = [
    "AnsweredContext",
    "Dialogue",
    "Pool",
    "Raw",
    "Reader",
    "Source",
    "build",
    "first_line",
    "json_members",
    "parse_json",
    "read_lines",
    "records_in",
    "role_of",
]
