# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Sphinx's settings for the site of documents, headers and the Python package. scripts/docs puts its sources together."""

import os

project = "tarn"
copyright = "2026 The tarn authors"
version = release = os.environ["TARN_VERSION"]

extensions = ["myst_parser", "breathe"]
root_doc = "index"
exclude_patterns = []
language = "en"
highlight_language = "none"
primary_domain = "c"

myst_heading_anchors = 5
breathe_projects = {"tarn": os.environ["TARN_DOCS"] + "/xml"}
breathe_default_project = "tarn"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False
c_id_attributes = ["TARN_API"]

html_theme = "furo"
html_title = "tarn " + release
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
