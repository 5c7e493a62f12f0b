/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Numbers for people and from people. */
#ifndef TOOLS_UNITS_H
#define TOOLS_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* A text of fixed room, so that several can be made in one expression. */
struct units_text {
    char text[40];
};

/* 1536 -> "1.50 KiB"; always three significant digits, except for bytes. */
struct units_text units_bytes(uint64_t bytes);
/* The same, rounded up, for a size that is enough: read again it is not below `bytes`. */
struct units_text units_bytes_up(uint64_t bytes);
/* 1500000 -> "1.50 ms". */
struct units_text units_time(uint64_t ns);
/* 19936 -> "19,936". */
struct units_text units_count(uint64_t count);

/* "80G", "80GiB", "512 MiB", "1.5g", "1024": bytes in units of 1024. False for anything else, and
 * beyond 2^62. */
bool units_parse_bytes(const char *text, uint64_t *bytes);
/* The same for the memory of a device: 2 MiB or more, and below 2^60. */
bool units_parse_memory(const char *text, uint64_t *bytes);
#define UNITS_WANTS_MEMORY "a size of 2 MiB or more, as 80G"
/* "1.5s", "250 ms", "30us", "7ns": ns. False for anything else. */
bool units_parse_time(const char *text, uint64_t *ns);
/* A decimal number from `least` to `most`, to the end of the text. */
bool units_parse_number(const char *text, double least, double most, double *number);
bool units_parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *count);

#endif
