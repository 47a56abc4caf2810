/* GDRCopy: copies by the CPU through a mapping of a GPU's memory. */
#ifndef GDRCHECK_GDRCOPY_H
#define GDRCHECK_GDRCOPY_H

#include "mem.h"

enum { GDR_COPY_SIZES = 12 }; /* 4 bytes to 16 MiB, by four */

/* One size: times in ns of one copy each way, and what arrived. */
struct gdr_copied {
	size_t bytes;
	double to, from;           /* through the mapping */
	double cuda_to, cuda_from; /* by the GPU's library */
	int wrong_to, wrong_from;
};

struct gdr_copy {
	struct gdr_mem mem;
	int library[2], driver[2]; /* major and minor version */
	double pin_ns, map_ns;
	int mapping; /* gdr_mapping_type_t; -1: an old library cannot tell */
	struct gdr_copied sizes[GDR_COPY_SIZES];
	/* What failed: an errno, or the negated error of the GPU's library. */
	const char *call;
	int rc;
};

/* Loads libgdrapi. Returns NULL, or why it cannot be used, which the caller frees. */
char *gdr_copy_load(const char *path);

/* Allocates memory of a GPU, pins and maps it, and copies; -1: c->call failed. */
int gdr_copy_probe(struct gdr_copy *c, const struct gdr_mem_ops *ops, int device);

#endif
