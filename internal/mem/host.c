/* Host memory on a chosen NUMA node. The system calls are made directly: of
 * libnuma nothing more would be used. */
#define _GNU_SOURCE
#include "mem.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { max_node = 1024, word_bits = 8 * sizeof(unsigned long) };

static int host_alloc(struct gdr_mem *m, size_t bytes, int node, const char **call)
{
	unsigned long mask[max_node / word_bits] = { 0 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p;

	bytes = (bytes + page - 1) / page * page;
	*call = "mmap";
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return errno;
	if (node >= 0 && node < max_node) {
		mask[node / word_bits] |= 1UL << node % word_bits;
		/* Preferred, not bound: short of memory there, a test elsewhere that
		 * says so is worth more than none. A kernel without NUMA refuses,
		 * and has one node. */
		(void)syscall(SYS_mbind, p, bytes, MPOL_PREFERRED, mask, (unsigned long)max_node, 0);
	}
	memset(p, 0, bytes); /* pages are placed when they are touched */
	m->addr = p;
	m->bytes = bytes;
	m->device = node;
	return 0;
}

static void host_release(struct gdr_mem *m)
{
	(void)munmap(m->addr, m->bytes);
	m->addr = NULL;
}

static int host_in(struct gdr_mem *m, size_t to, const void *from, size_t bytes)
{
	memcpy((char *)m->addr + to, from, bytes);
	return 0;
}

static int host_out(struct gdr_mem *m, void *to, size_t from, size_t bytes)
{
	memcpy(to, (const char *)m->addr + from, bytes);
	return 0;
}

static int host_node(const struct gdr_mem *m)
{
	int node;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0UL, m->addr, (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)))
		return -1;
	return node;
}

/* The CPU copies by itself, so a queue holds nothing back, and what is started is through. */
static char at_once;

static int host_pin(struct gdr_mem *m, void *addr, size_t bytes, const char **call)
{
	(void)m, (void)addr, (void)bytes, (void)call;
	return 0;
}

static int host_open(struct gdr_mem *m, void **handle, const char **call)
{
	(void)m, (void)call;
	*handle = &at_once;
	return 0;
}

static void host_close(struct gdr_mem *m, void *handle) { (void)m, (void)handle; }

static int host_copy_start(struct gdr_mem *m, void *queue, void *host, size_t off, size_t bytes, int out, void *event, const char **call)
{
	(void)queue, (void)event, (void)call;
	return out ? host_out(m, host, off, bytes) : host_in(m, off, host, bytes);
}

static int host_done(struct gdr_mem *m, void *event)
{
	(void)m, (void)event;
	return 0;
}

const struct gdr_mem_ops gdr_mem_host = {
	.kind = "host",
	.cpu_access = 1,
	.alloc = host_alloc,
	.release = host_release,
	.copy_in = host_in,
	.copy_out = host_out,
	.node = host_node,
	.pin = host_pin,
	.unpin = host_close,
	.queue_open = host_open,
	.queue_close = host_close,
	.event_open = host_open,
	.event_close = host_close,
	.copy_start = host_copy_start,
	.event_done = host_done,
};
