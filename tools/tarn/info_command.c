/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn info`: what tarn finds on this machine. Everything is gathered first and shown afterwards,
 * as tables or as JSON; keys are documented in docs/man/info.h2m, and are added to, not changed. */
#include "command.h"
#include "driver/driver.h"
#include "json_print.h"
#include "units.h"

#include <jansson.h>
#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>
#include <unistd.h>

static const char help[] =
    "Usage: tarn info [OPTION]...\n"
    "\n"
    "Shows which driver tarn chooses on this machine and why, its devices, the settings of the "
    "memory layer and which\n"
    "of them have no effect, and each vendor library: whether it can be opened, its path and "
    "version, and if it "
    "cannot\n"
    "be used, why not.\n"
    "\n"
    "Options:\n"
    "      --json   Print one JSON object instead of tables\n"
    "  -h, --help   Show this help\n"
    "\n"
    "Environment:\n"
    "  TARN_DRIVER         The driver to choose: auto (a GPU if one answers, otherwise the host\n"
    "                      device), cuda, hip or host\n"
    "  TARN_ALLOC_CONF     The settings of the memory layer\n"
    "  TARN_LIBRARY_PATH   Colon-separated directories that are searched for libraries first\n"
    "\n"
    "Exit status: 0 when at least one device works, 1 when none does or the settings are "
    "malformed, 2 for an invalid\n"
    "command line.\n"
    "\n"
    "Examples:\n"
    "  tarn info\n"
    "      Show everything.\n"
    "  tarn info --json | jq -r '.libraries[] | select(.usable) | .name'\n"
    "      The libraries whose handles can be used.\n";

struct device_info {
    tarn_device_properties properties;
    size_t free_bytes, total_bytes;
    char error[512]; /* "" when it works */
};

struct machine {
    char driver[16], reason[1024];             /* driver "" when there is none */
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
    if (tarn_configuration_get(machine->settings, sizeof machine->settings, NULL)) {
        machine->settings[0] = '\0';
        snprintf(machine->settings_error, sizeof machine->settings_error, "%s", tarn_last_error());
    }
}

/* False when memory is short. */
static bool gather(struct machine *machine)
{
    if (tarn_device_count_get(&machine->device_count)) {
        machine->device_count = 0;
        snprintf(machine->reason, sizeof machine->reason, "%s", tarn_last_error());
    } else {
        snprintf(machine->driver, sizeof machine->driver, "%s", driver->name);
        snprintf(machine->reason, sizeof machine->reason, "%s", driver_reason());
    }
    gather_settings(machine);
    if (tarn_library_count_get(&machine->library_count))
        machine->library_count = 0;
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

static bool works(const struct machine *machine)
{
    if (machine->settings_error[0])
        return false;
    for (int i = 0; i < machine->device_count; i++)
        if (!machine->devices[i].error[0])
            return true;
    return false;
}

static const char *platform_name(tarn_platform platform)
{
    return platform == TARN_PLATFORM_CUDA ? "cuda" : platform == TARN_PLATFORM_HIP ? "hip" : "any";
}

/* Tables --------------------------------------------------------------------------------------- */

/* Prints and frees a table; without the blanks that pad the end of a line. */
static bool table_print(struct libscols_table *table)
{
    char *text = NULL;
    bool done = scols_print_table_to_string(table, &text) == 0 && text;
    for (const char *line = text; done && *line;) {
        size_t length = strcspn(line, "\n"), kept = length;
        while (kept > 0 && line[kept - 1] == ' ')
            kept--;
        done = printf("%.*s\n", (int)kept, line) > 0;
        line += length + (line[length] == '\n');
    }
    free(text);
    scols_unref_table(table);
    return done;
}

static struct libscols_table *table_begin(const char *const *columns, size_t count)
{
    struct libscols_table *table = scols_new_table();
    bool done = table && scols_table_set_column_separator(table, "  ") == 0;
    for (size_t i = 0; i < count && done; i++)
        done = scols_table_new_column(table, columns[i], 0, 0) != NULL;
    if (done)
        return table;
    scols_unref_table(table);
    return NULL;
}

static bool table_row(struct libscols_table *table, const char *const *cells, size_t count)
{
    struct libscols_line *line = scols_table_new_line(table, NULL);
    for (size_t i = 0; i < count && line; i++)
        if (scols_line_set_data(line, i, cells[i]))
            return false;
    return line != NULL;
}

#define DEVICE_COLUMNS 6
static bool devices_write(const struct machine *machine)
{
    static const char *const columns[DEVICE_COLUMNS] = {"DEVICE", "NAME",       "MEMORY",
                                                        "FREE",   "CAPABILITY", "VIRTUAL MEMORY"};
    struct libscols_table *table = table_begin(columns, DEVICE_COLUMNS);
    bool done = table != NULL;
    for (int i = 0; i < machine->device_count && done; i++) {
        const struct device_info *device = &machine->devices[i];
        const tarn_device_properties *properties = &device->properties;
        char number[16], capability[32] = "-", virtual_memory[64] = "no";
        struct units_text memory = units_bytes(properties->memory),
                          available = units_bytes(device->free_bytes);
        snprintf(number, sizeof number, "%d", i);
        if (properties->capability_major)
            snprintf(capability, sizeof capability, "%d.%d", properties->capability_major,
                     properties->capability_minor);
        if (properties->virtual_memory)
            snprintf(virtual_memory, sizeof virtual_memory, "%s granules%s",
                     units_bytes(properties->granule).text,
                     properties->alias ? "" : ", no aliases");
        const char *cells[DEVICE_COLUMNS] = {number,         properties->name, memory.text,
                                             available.text, capability,       virtual_memory};
        if (device->error[0])
            cells[3] = "-";
        done = table_row(table, cells, DEVICE_COLUMNS);
    }
    return done && table_print(table);
}

#define LIBRARY_COLUMNS 5
static bool libraries_write(const struct machine *machine)
{
    static const char *const columns[LIBRARY_COLUMNS] = {"LIBRARY", "STATE", "VERSION",
                                                         "PROTOTYPES", "WHERE"};
    struct libscols_table *table = table_begin(columns, LIBRARY_COLUMNS);
    bool done = table != NULL;
    for (int i = 0; i < machine->library_count && done; i++) {
        const tarn_library_info *info = &machine->libraries[i];
        char where[300], state[32];
        snprintf(state, sizeof state, "%s",
                 info->usable  ? "usable"
                 : info->found ? "other driver"
                               : "missing");
        snprintf(where, sizeof where, "%s%s", info->found ? "" : "tried ",
                 info->found ? info->path : info->sonames);
        const char *cells[LIBRARY_COLUMNS] = {info->name, state,
                                              info->version[0] ? info->version : "-",
                                              info->checked ? "checked" : "unchecked", where};
        done = table_row(table, cells, LIBRARY_COLUMNS);
    }
    return done && table_print(table);
}

static bool settings_write(const struct machine *machine)
{
    const char *note = NULL;
    if (machine->settings_error[0])
        return printf("no settings: %s\n", machine->settings_error) > 0;
    bool done = printf("settings %s\n", machine->settings) > 0;
    for (int i = 0; done && !tarn_configuration_note_get(i, &note) && note; i++)
        done = printf("  without effect: %s\n", note) > 0;
    return done;
}

static bool tables_write(const struct machine *machine)
{
    bool done = printf("tarn %s\n", tarn_version()) > 0;
    if (machine->driver[0])
        done = done && printf("driver %s\n\n", machine->reason) > 0 && devices_write(machine);
    else
        done = done && printf("no driver: %s\n", machine->reason) > 0;
    for (int i = 0; i < machine->device_count && done; i++)
        if (machine->devices[i].error[0])
            done = printf("device %d does not work: %s\n", i, machine->devices[i].error) > 0;
    done = done && putchar('\n') != EOF && settings_write(machine);
    return done && putchar('\n') != EOF && libraries_write(machine);
}

/* JSON ----------------------------------------------------------------------------------------- */

/* Names and paths need not be UTF-8: what is not, becomes '?'. */
static json_t *json_text(const char *text)
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
    return text[0] ? json_text(text) : json_null();
}

static json_t *json_device(int number, const struct device_info *device)
{
    const tarn_device_properties *properties = &device->properties;
    char capability[32] = "";
    if (properties->capability_major)
        snprintf(capability, sizeof capability, "%d.%d", properties->capability_major,
                 properties->capability_minor);
    return json_pack("{s:i, s:o, s:b, s:o, s:I, s:I, s:o, s:b, s:I, s:b}", "device", number, "name",
                     json_text(properties->name), "works", device->error[0] == 0, "error",
                     json_text_or_null(device->error), "memory", (json_int_t)properties->memory,
                     "free", (json_int_t)device->free_bytes, "capability",
                     json_text_or_null(capability), "virtual_memory",
                     (int)properties->virtual_memory, "granule", (json_int_t)properties->granule,
                     "alias", (int)properties->alias);
}

/* "a, b" as an array. */
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
        if (json_array_append_new(array, json_text(note))) {
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

static bool json_write(const struct machine *machine)
{
    json_t *devices = json_array(), *libraries = json_array(), *object = NULL;
    bool done = devices && libraries;
    for (int i = 0; i < machine->device_count && done; i++)
        done = json_array_append_new(devices, json_device(i, &machine->devices[i])) == 0;
    for (int i = 0; i < machine->library_count && done; i++)
        done = json_array_append_new(libraries, json_library(&machine->libraries[i])) == 0;
    if (done)
        object = json_pack("{s:s, s:o, s:o, s:o, s:O, s:O}", "version", tarn_version(), "driver",
                           json_text_or_null(machine->driver), "reason", json_text(machine->reason),
                           "settings", json_settings(machine), "devices", devices, "libraries",
                           libraries);
    done = json_print(object, stdout);
    json_decref(object);
    json_decref(devices);
    json_decref(libraries);
    return done;
}

/* The command ---------------------------------------------------------------------------------- */

static int info(bool json)
{
    struct machine machine = {0};
    bool gathered = gather(&machine);
    bool written = gathered && (json ? json_write(&machine) : tables_write(&machine));
    if (!written)
        fputs(gathered ? "tarn info: the results could not be written\n"
                       : "tarn info: out of memory\n",
              stderr);
    int status = written && works(&machine) ? COMMAND_OK : COMMAND_FAILED;
    free(machine.devices);
    free(machine.libraries);
    return status;
}

static int run(int argc, char **argv)
{
    static const struct command_option options[] = {{.name = "json"}, {.name = NULL}};
    bool json = false; /* all there is to say */
    int status = command_parse(&info_command, options, &json, argc, argv);
    if (status != COMMAND_GO_ON)
        return status;
    if (optind < argc)
        return command_usage_error("info", "there is nothing to do with \"%s\"", argv[optind]);
    return info(json);
}

const struct command info_command = {
    .name = "info",
    .summary =
        "Show the driver, the devices, the settings and the vendor libraries that tarn finds",
    .help = help,
    .run = run,
};
