"""Sphinx configuration: ``sphinx-build -W docs docs/_build/html`` with the package installed."""

from resispec_verify import __version__

project = "resispec-verify"
author = "The resispec-verify authors"
copyright = author
release = version = __version__

# sphinx-mathjax-offline ships MathJax, so that the built pages show formulas without a network.
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx-mathjax-offline"]
source_suffix = {".md": "markdown"}
autosummary_generate = False
exclude_patterns = ["_build", "requirements.txt"]

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpydoc sections say it with shapes
numpydoc_show_class_members = False
default_role = "code"

html_theme = "furo"
html_title = f"resispec-verify {release}"
