/* What the kinds of memory behind vendors' libraries share. */
#ifndef GDRCHECK_MEM_LIBRARY_H
#define GDRCHECK_MEM_LIBRARY_H

#include <stddef.h>

struct gdr_symbol {
	const char *name;
	void **fn;
	int optional;
};

/* Fills the table from a library. Returns NULL, or why it cannot be used, which
 * the caller frees. What was loaded stays loaded: it keeps threads and state. */
char *gdr_library_load(const char *path, const struct gdr_symbol *table, size_t n);

/* Makes a call, named for whoever waits for it. */
#define GDR_CALL(name, ...) (gdr_mem_begin(name), gdr_mem_end(__VA_ARGS__))
void gdr_mem_begin(const char *call);
int gdr_mem_end(int rc);

/* NICs and peer memory clients map device memory in pages of this size. */
enum { GDR_DEVICE_PAGE = 65536 };

#endif
