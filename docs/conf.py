"""How Sphinx makes the site: ``python -m sphinx -W --keep-going -b html docs build/site``, with the extra ``docs``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ["NUMBA_BARACUDA_EMULATE"] = "1"  # pages are alike on all machines

import numba_baracuda

project = "numba_baracuda"
copyright = "the numba_baracuda contributors"
version = release = numba_baracuda.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "reference"]
exclude_patterns = ["_ext", "_templates"]
nb_execution_mode = "off"  # notebooks are stored with their outputs, which a test makes again
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 100

html_theme = "pydata_sphinx_theme"
html_title = f"numba_baracuda {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
