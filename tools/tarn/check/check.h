/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The parts of `tarn check`. The command itself never calls a driver: each part that does runs in a
 * child with a time limit, and answers with JSON. A driver that hangs takes only that child. */
#ifndef TOOLS_CHECK_H
#define TOOLS_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <tarn/tarn.h>

/* What came of a contract. */
enum outcome { OUTCOME_OK, OUTCOME_FAILED, OUTCOME_ABSENT };

struct outcome_text {
    enum outcome outcome;
    char text[700]; /* tarn's error, or why it is not here */
};

/* One contract, checked on every device. What is started before tarn is used goes to `argument`. */
struct contract {
    const char *name, *promise;
    double limit;                                    /* seconds; what takes longer hangs */
    bool (*needs)(const tarn_device_properties *at); /* NULL: every device has it */
    const char *absent;                              /* why it is not here where `needs` is false */
    void (*check)(int device, void *argument, struct outcome_text *result);
    void *(*start)(void); /* may be NULL: before the process uses tarn */
    const char *remedy;   /* what to do where it failed */
};

extern const struct contract contracts[]; /* ends with a NULL name */

/* In a child: {"state", "text"}. */
json_t *contract_run(const void *contract);
/* The same for the handles of a library, by its name. */
json_t *contract_library(const void *name);

/* In a child: the driver, the devices, the settings and the libraries. */
json_t *inventory(const void *nothing);

/* Runs a function in a child, and gives what it answers. NULL where it does not: `why` says so. */
json_t *child_answer(json_t *(*function)(const void *), const void *argument, double seconds,
                     char *why, size_t size);
double child_clock(void); /* seconds */

/* What files say of the machine; `root` is "" or a folder that stands for /. And why there is no
 * GPU, with the remedy in `remedy`; NULL where the files do not say. */
json_t *surroundings(const char *root);
const char *surroundings_no_gpu(const json_t *found, const char **remedy);

/* Takes out of every text of a value what is nobody's business: the folder, the user and the host
 * by name, UUIDs, and folders that are not the system's. */
struct secrets {
    const char *home, *user, *host;
};
void redact(json_t *value, const struct secrets *secrets);

/* Prints the report as text. */
bool check_text(const json_t *report, FILE *out);

/* JSON of a text that need not be UTF-8: what is not, becomes '?'. */
json_t *check_json_text(const char *text);

#endif
