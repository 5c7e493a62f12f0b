/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The report as half a page of text. */
#include "check.h"
#include "units.h"

#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static bool is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static void limit(const json_t *at, const char *key, const char *name, bool bytes, FILE *out)
{
    long long value = number_of(at, key);
    if (value > 0 && bytes)
        fprintf(out, ", %s %s", name, units_bytes((uint64_t)value).text);
    else if (value > 0)
        fprintf(out, ", %s %lld", name, value);
}

static void machine(const json_t *at, FILE *out)
{
    fprintf(out, "machine %s, kernel %s, %s, %lld processors\n", text_of(at, "system"),
            text_of(at, "kernel"), text_of(at, "processor"), number_of(at, "processors"));
    fprintf(out, "limits ");
    fprintf(out, "mappings %lld", number_of(at, "mappings"));
    limit(at, "files", "files", false, out);
    limit(at, "locked_memory", "locked memory", true, out);
    limit(at, "group_memory", "memory of the control group", true, out);
    fprintf(out, "%s%s", *text_of(at, "container") ? "; container " : "; no container",
            text_of(at, "container"));
    fprintf(out, "%s%s", is_true(at, "wsl2") ? "; WSL2" : "", is_true(at, "mps") ? "; MPS" : "");
    if (*text_of(at, "kernel_driver"))
        fprintf(out, "; kernel driver %s", text_of(at, "kernel_driver"));
    fputc('\n', out);
}

static void device(const json_t *at, const char *driver, FILE *out)
{
    fprintf(out, "device %lld: %s", number_of(at, "device"), text_of(at, "name"));
    if (!is_true(at, "works")) {
        fprintf(out, " does not work: %s\n", text_of(at, "error"));
        return;
    }
    fprintf(out, ", %s", units_bytes((uint64_t)number_of(at, "memory")).text);
    fprintf(out, " (%s free)", units_bytes((uint64_t)number_of(at, "free")).text);
    if (is_true(at, "integrated"))
        fprintf(out, ", integrated%s",
                strcmp(driver, "cuda") == 0 ? ": the limit is the machine's memory" : "");
    if (is_true(at, "paged"))
        fputs(", paged by the system: the limit is what is free", out);
    fprintf(out, "%s%s%s", is_true(at, "coherent") ? ", coherent" : "",
            is_true(at, "slice") ? ", a MIG instance" : "",
            is_true(at, "mps") ? ", shared by MPS" : "");
    if (number_of(at, "address_bits") > 0 && number_of(at, "address_bits") < 47)
        fprintf(out, ", addresses of %lld bits", number_of(at, "address_bits"));
    if (*text_of(at, "capability"))
        fprintf(out, ", capability %s", text_of(at, "capability"));
    if (is_true(at, "virtual_memory"))
        fprintf(out, ", %s granules%s%s", units_bytes((uint64_t)number_of(at, "granule")).text,
                is_true(at, "alias") ? "" : ", no aliases",
                is_true(at, "exportable") ? "" : ", no export");
    else
        fputs(", no virtual memory", out);
    fputc('\n', out);
}

/* Prints one line per library that was found, with its path, and one line for all that were not. */
static void libraries(const json_t *all, FILE *out)
{
    const char *before = "libraries missing: ";
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *at = json_array_get(all, i);
        if (is_true(at, "found"))
            fprintf(out, "library %s %s%s%s: %s%s\n", text_of(at, "name"), text_of(at, "version"),
                    *text_of(at, "version") ? " " : "",
                    is_true(at, "usable") ? "usable" : "for another driver", text_of(at, "path"),
                    is_true(at, "checked") ? "" : " (unchecked)");
    }
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *at = json_array_get(all, i);
        if (!is_true(at, "found")) {
            fprintf(out, "%s%s", before, text_of(at, "name"));
            before = ", ";
        }
    }
    if (before[0] == ',')
        fputc('\n', out);
}

static void settings(const json_t *at, FILE *out)
{
    const json_t *notes = json_object_get(at, "without_effect");
    if (*text_of(at, "error"))
        fprintf(out, "no settings: %s\n", text_of(at, "error"));
    else
        fprintf(out, "settings %s\n", text_of(at, "text"));
    for (size_t i = 0; i < json_array_size(notes); i++)
        fprintf(out, "  without effect: %s\n", json_string_value(json_array_get(notes, i)));
}

bool check_text(const json_t *report, FILE *out)
{
    const json_t *devices = json_object_get(report, "devices");
    const json_t *tried = json_object_get(report, "contracts");
    fprintf(out, "tarn %s\n", text_of(report, "version"));
    machine(json_object_get(report, "machine"), out);
    fprintf(out, "%s%s\n",
            *text_of(report, "driver") ? "driver " : "no driver: ", text_of(report, "reason"));
    for (size_t i = 0; i < json_array_size(devices); i++)
        device(json_array_get(devices, i), text_of(report, "driver"), out);
    settings(json_object_get(report, "settings"), out);
    libraries(json_object_get(report, "libraries"), out);
    for (size_t i = 0; i < json_array_size(tried); i++) {
        const json_t *at = json_array_get(tried, i);
        fprintf(out, "%-11s %-8s %s%s%s\n", text_of(at, "name"), text_of(at, "state"),
                text_of(at, "promise"), *text_of(at, "text") ? ": " : "", text_of(at, "text"));
    }
    fprintf(out, "\n%s\n", text_of(report, "verdict"));
    return !ferror(out);
}
