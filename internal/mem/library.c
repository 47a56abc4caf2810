#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

static const char *at;

const char *gdr_mem_at(void) { return __atomic_load_n(&at, __ATOMIC_RELAXED); }
void gdr_mem_begin(const char *call) { __atomic_store_n(&at, call, __ATOMIC_RELAXED); }

int gdr_mem_end(int rc)
{
	__atomic_store_n(&at, NULL, __ATOMIC_RELAXED);
	return rc;
}

char *gdr_library_load(const char *path, const struct gdr_symbol *table, size_t n)
{
	void *lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
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
