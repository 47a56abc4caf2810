/* The call into a library that is under way, noted in memory that a worker's
 * parent reads: it names the call should the worker hang in it, or die. One
 * thread makes calls. */
#ifndef GDRCHECK_MEM_TRACE_H
#define GDRCHECK_MEM_TRACE_H

#include <stddef.h>

/* The first byte is 1 once the call is through; its name follows. */
enum { GDR_TRACE_BYTES = 64 };

static inline void gdr_trace_begin(char *trace, const char *call)
{
	size_t n;

	if (!trace)
		return;
	trace[0] = 0;
	for (n = 1; n < GDR_TRACE_BYTES - 1 && call[n - 1]; n++)
		trace[n] = call[n - 1];
	trace[n] = 0;
}

static inline void gdr_trace_end(char *trace)
{
	if (trace)
		trace[0] = 1;
}

#endif
