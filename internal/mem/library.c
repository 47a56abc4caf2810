#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

char *gdr_mem_trace;

void gdr_mem_begin(const char *call) { gdr_trace_begin(gdr_mem_trace, call); }

int gdr_mem_end(int rc)
{
	gdr_trace_end(gdr_mem_trace);
	return rc;
}

static void *open_library(const char *path)
{
	char call[GDR_TRACE_BYTES];
	void *lib;

	(void)snprintf(call, sizeof(call), "dlopen %s", path);
	gdr_mem_begin(call);
	lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	(void)gdr_mem_end(0);
	return lib;
}

char *gdr_library_load(const char *path, const struct gdr_symbol *table, size_t n)
{
	void *lib = open_library(path);
	char *text = NULL;
	size_t i;

	if (!lib) {
		const char *why = dlerror();

		return strdup(why ? why : "dlopen failed");
	}
	for (i = 0; i < n; i++) {
		*table[i].fn = dlsym(lib, table[i].name);
		if (!*table[i].fn && !table[i].optional)
			return asprintf(&text, "%s has no %s", path, table[i].name) < 0 ? strdup(table[i].name) : text;
	}
	return NULL;
}
