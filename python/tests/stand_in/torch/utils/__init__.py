# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
