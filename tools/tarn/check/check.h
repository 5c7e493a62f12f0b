/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The parts of `tarn check`. The command itself never calls a driver. Each part that does runs in a
 * child with a time limit, and answers with JSON. So a driver that hangs takes only that child with
 * it. The command cannot tell one that hangs from one that is slow. */
#ifndef TOOLS_CHECK_H
#define TOOLS_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <tarn/tarn.h>

/* The result of a contract. */
enum outcome { OUTCOME_OK, OUTCOME_FAILED, OUTCOME_ABSENT };

struct outcome_text {
    enum outcome outcome;
    char text[700]; /* tarn's error, or why the contract does not apply here */
};

/* A contract, which is checked on every device. What start() returns is passed as `argument`. */
struct contract {
    const char *name, *promise;
    double limit;                                    /* seconds after which it is ended */
    bool (*needs)(const tarn_device_properties *at); /* NULL: it applies to every device */
    /* why it does not apply where `needs` is false */
    const char *absent;
    void (*check)(int device, void *argument, struct outcome_text *result);
    void *(*start)(void); /* called before the process uses tarn; may be NULL */
    const char *remedy;   /* what to do if it failed */
};

extern const struct contract contracts[]; /* ends with a NULL name */

/* Runs in a child. Returns {"state", "text"}. */
json_t *contract_run(const void *contract);
/* The same for the handles of a library, which is named. */
json_t *contract_library(const void *name);

/* Runs in a child. Returns the driver, the devices, the settings and the libraries. */
json_t *inventory(const void *nothing);

/* Runs a function in a child and returns its answer. NULL if there is none; `why` says why, and
 * `late` is true if the time was over. */
json_t *child_answer(json_t *(*function)(const void *), const void *argument, double seconds,
                     char *why, size_t size, bool *late);
double child_clock(void); /* seconds */

/* surroundings(): what files say of the machine. `root` is "" or a folder that stands for /.
 * surroundings_no_gpu(): why there is no GPU, with the remedy in `remedy`; NULL if the files do not
 * show it. */
json_t *surroundings(const char *root);
const char *surroundings_no_gpu(const json_t *found, const char **remedy);

/* Removes private parts from every text of a value: the folder, the user and the host by their
 * names, UUIDs, and paths outside of the system's folders. */
struct secrets {
    const char *home, *user, *host;
};
void redact(json_t *value, const struct secrets *secrets);

/* Prints the report as text. */
bool check_text(const json_t *report, FILE *out);

/* A JSON text from any bytes: what is not UTF-8 becomes '?'. */
json_t *check_json_text(const char *text);

#endif
