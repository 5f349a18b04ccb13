"""Flags from a frozen dataclass: how they are parsed, their help page and their error messages."""

from spherelm.flags.parse import SHORT_FORMS as SHORT_FORMS
from spherelm.flags.parse import parse as parse
from spherelm.flags.words import given as given
from spherelm.flags.words import long_forms as long_forms
from spherelm.flags.words import value_of as value_of
