/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A folder that stands for / when tarn reads what the machine has available (base/machine.h). */
#ifndef TESTS_SUPPORT_MACHINE_FILES_H
#define TESTS_SUPPORT_MACHINE_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Makes an empty folder and has tarn read there, in this process; once per process. */
void machine_files_begin(void);
/* Removes it. */
void machine_files_end(void);
/* Writes a file below it, and the folders that it needs. */
void machine_file(const char *path, const char *text);
/* Removes one; whether there was one. */
bool machine_file_remove(const char *path);
/* What the kernel says: MiB available, of so many in all. */
void machine_has(size_t available, size_t total);

#endif
