/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn finds on this machine: driver, devices, settings and libraries. docs/man/check.h2m
 * documents the keys. Keys may be added, and never change. */
#include "check.h"
#include "driver/driver.h"

#include <stdlib.h>
#include <string.h>

struct device_info {
    tarn_device_properties properties;
    size_t free_bytes, total_bytes;
    char error[512]; /* "" if it works */
};

struct machine {
    char driver[16], reason[1024];             /* driver is "" if there is none */
    char settings[4096], settings_error[1024]; /* one of the two is "" */
    int device_count, library_count;
    struct device_info *devices;
    tarn_library_info *libraries;
};

/* Gathering ------------------------------------------------------------------------------------ */

static void gather_device(int number, struct device_info *device)
{
    device->properties.size = sizeof device->properties;
    if (tarn_device_properties_get(number, &device->properties) ||
        tarn_device_memory_get(number, &device->free_bytes, &device->total_bytes))
        snprintf(device->error, sizeof device->error, "%s", tarn_last_error());
}

static void gather_settings(struct machine *machine)
{
    if (!machine->settings_error[0] &&
        tarn_configuration_get(machine->settings, sizeof machine->settings, NULL)) {
        machine->settings[0] = '\0';
        snprintf(machine->settings_error, sizeof machine->settings_error, "%s", tarn_last_error());
    }
}

/* False when memory is short. */
static bool gather(struct machine *machine)
{
    tarn_status counted = tarn_device_count_get(&machine->device_count);
    if (counted) {
        machine->device_count = 0;
        snprintf(machine->reason, sizeof machine->reason, "%s", tarn_last_error());
        if (counted == TARN_ERROR_CONFIGURATION)
            snprintf(machine->settings_error, sizeof machine->settings_error, "%s",
                     tarn_last_error());
    } else {
        snprintf(machine->driver, sizeof machine->driver, "%s", driver->name);
        snprintf(machine->reason, sizeof machine->reason, "%s", driver_reason());
    }
    gather_settings(machine);
    tarn_library_info info = {.size = sizeof info};
    while (machine->library_count < TARN_MAX_LIBRARIES &&
           !tarn_library_info_get(machine->library_count + 1, &info))
        machine->library_count++;
    machine->devices = calloc((size_t)machine->device_count + 1, sizeof *machine->devices);
    machine->libraries = calloc((size_t)machine->library_count + 1, sizeof *machine->libraries);
    if (!machine->devices || !machine->libraries)
        return false;
    for (int i = 0; i < machine->device_count; i++)
        gather_device(i, &machine->devices[i]);
    for (int i = 0; i < machine->library_count; i++) {
        machine->libraries[i].size = sizeof machine->libraries[i];
        (void)tarn_library_info_get(i + 1, &machine->libraries[i]);
    }
    return true;
}

static const char *platform_name(tarn_platform platform)
{
    return platform == TARN_PLATFORM_CUDA ? "cuda" : platform == TARN_PLATFORM_HIP ? "hip" : "any";
}

/* JSON ----------------------------------------------------------------------------------------- */

/* Names and paths need not be UTF-8: invalid bytes become '?'. */
json_t *check_json_text(const char *text)
{
    json_t *string = json_string(text);
    char *ascii = string ? NULL : strdup(text);
    if (!ascii)
        return string;
    for (char *at = ascii; *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    string = json_string(ascii);
    free(ascii);
    return string;
}

static json_t *json_text_or_null(const char *text)
{
    return text[0] ? check_json_text(text) : json_null();
}

static json_t *json_device(int number, const struct device_info *device)
{
    const tarn_device_properties *properties = &device->properties;
    char capability[32] = "";
    if (properties->capability_major)
        snprintf(capability, sizeof capability, "%d.%d", properties->capability_major,
                 properties->capability_minor);
    return json_pack(
        "{s:i, s:o, s:b, s:o, s:I, s:I, s:o, s:b, s:I, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:i}",
        "device", number, "name", check_json_text(properties->name), "works", device->error[0] == 0,
        "error", json_text_or_null(device->error), "memory", (json_int_t)properties->memory, "free",
        (json_int_t)device->free_bytes, "capability", json_text_or_null(capability),
        "virtual_memory", (int)properties->virtual_memory, "granule",
        (json_int_t)properties->granule, "alias", (int)properties->alias, "exportable",
        (int)properties->exportable, "integrated", (int)properties->integrated, "coherent",
        (int)properties->coherent, "slice", (int)properties->slice, "mps", (int)properties->mps,
        "paged", (int)properties->paged, "address_bits", properties->address_bits);
}

/* Makes an array of a text such as "a, b". */
static json_t *json_list(const char *text)
{
    json_t *array = json_array();
    while (array && *text) {
        size_t length = strcspn(text, ",");
        if (json_array_append_new(array, json_stringn(text, length))) {
            json_decref(array);
            return NULL;
        }
        text += length;
        text += strspn(text, ", ");
    }
    return array;
}

static json_t *json_library(const tarn_library_info *info)
{
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:o, s:o, s:o, s:o}", "name", info->name,
                     "platform", platform_name(info->platform), "found", (int)info->found, "usable",
                     (int)info->usable, "checked", (int)info->checked, "path",
                     json_text_or_null(info->path), "version", json_text_or_null(info->version),
                     "sonames", json_list(info->sonames), "reason",
                     json_text_or_null(info->reason));
}

static json_t *json_notes(void)
{
    json_t *array = json_array();
    const char *note = NULL;
    for (int i = 0; array && !tarn_configuration_note_get(i, &note) && note; i++) {
        if (json_array_append_new(array, check_json_text(note))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *json_settings(const struct machine *machine)
{
    return json_pack("{s:o, s:o, s:o}", "text", json_text_or_null(machine->settings), "error",
                     json_text_or_null(machine->settings_error), "without_effect", json_notes());
}

json_t *inventory(const void *nothing)
{
    struct machine machine = {0};
    (void)nothing;
    json_t *devices = json_array(), *libraries = json_array(), *object = NULL;
    bool done = gather(&machine) && devices && libraries;
    for (int i = 0; i < machine.device_count && done; i++)
        done = json_array_append_new(devices, json_device(i, &machine.devices[i])) == 0;
    for (int i = 0; i < machine.library_count && done; i++)
        done = json_array_append_new(libraries, json_library(&machine.libraries[i])) == 0;
    if (done)
        object = json_pack("{s:o, s:o, s:o, s:O, s:O}", "driver", json_text_or_null(machine.driver),
                           "reason", check_json_text(machine.reason), "settings",
                           json_settings(&machine), "devices", devices, "libraries", libraries);
    json_decref(devices);
    json_decref(libraries);
    free(machine.devices);
    free(machine.libraries);
    return object;
}
