# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

def is_traceable_wrapper_subclass(tensor): return False
