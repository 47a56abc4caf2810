#define _GNU_SOURCE
#include "register.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

void gdr_set_error(struct gdr_error *e, const char *call, int rc)
{
	memset(e, 0, sizeof(*e));
	e->call = call;
	e->err = rc > 0 ? rc : 0;
	e->code = rc < 0 ? -rc : 0;
}

static struct ibv_mr *by_dmabuf(const struct gdr_verbs *v, struct ibv_pd *pd, const struct gdr_mem *m, int data_direct, uint64_t offset, int fd, int access)
{
	uint64_t iova = (uint64_t)(uintptr_t)m->addr;

	if (data_direct)
		return GDR_VERB("mlx5dv_reg_dmabuf_mr", v->mlx5_reg_dmabuf_mr(pd, offset, m->bytes, iova, fd, access, GDR_MLX5_DATA_DIRECT));
	return GDR_VERB("ibv_reg_dmabuf_mr", v->reg_dmabuf_mr(pd, offset, m->bytes, iova, fd, access));
}

static int dmabuf(const struct gdr_verbs *v, struct ibv_pd *pd, struct gdr_mem *m, enum gdr_way way, int access, struct gdr_registration *r, const char **call)
{
	int data_direct = way == GDR_WAY_DATA_DIRECT, fd, rc;
	const char *reg = data_direct ? "mlx5dv_reg_dmabuf_mr" : "ibv_reg_dmabuf_mr";
	uint64_t offset, begin = gdr_monotonic_ns(), exported;

	*call = reg;
	if (data_direct ? !v->mlx5_reg_dmabuf_mr : !v->reg_dmabuf_mr)
		return ENOSYS;
	*call = "export of a dma-buf";
	if (!m->ops->export_dmabuf)
		return EOPNOTSUPP;
	rc = m->ops->export_dmabuf(m, way != GDR_WAY_DMABUF, &fd, &offset, call);
	if (rc)
		return rc;
	exported = gdr_monotonic_ns();
	*call = reg;
	errno = 0;
	r->mr = by_dmabuf(v, pd, m, data_direct, offset, fd, access);
	rc = r->mr ? 0 : gdr_failure();
	r->export_ns = exported - begin;
	r->register_ns = gdr_monotonic_ns() - exported;
	(void)close(fd); /* the registration holds the memory */
	return rc;
}

static int by_address(const struct gdr_verbs *v, struct ibv_pd *pd, struct gdr_mem *m, int access, struct gdr_registration *r, const char **call)
{
	uint64_t begin = gdr_monotonic_ns();

	*call = "ibv_reg_mr";
	errno = 0;
	if (access & IBV_ACCESS_OPTIONAL_RANGE && v->reg_mr_iova2)
		r->mr = GDR_VERB("ibv_reg_mr", v->reg_mr_iova2(pd, m->addr, m->bytes, (uint64_t)(uintptr_t)m->addr, (unsigned int)access));
	else
		r->mr = GDR_VERB("ibv_reg_mr", v->reg_mr(pd, m->addr, m->bytes, access & ~IBV_ACCESS_OPTIONAL_RANGE));
	r->export_ns = 0;
	r->register_ns = gdr_monotonic_ns() - begin;
	return r->mr ? 0 : gdr_failure();
}

int gdr_register(const struct gdr_verbs *v, struct ibv_pd *pd, struct gdr_mem *m, const enum gdr_way *ways, int n, int access, struct gdr_registration *r)
{
	int i;

	memset(r, 0, sizeof(*r));
	for (i = 0; i < n; i++) {
		const char *call = "";
		int rc;

		if (ways[i] == GDR_WAY_ADDRESS || ways[i] == GDR_WAY_PEERMEM)
			rc = by_address(v, pd, m, access, r, &call);
		else
			rc = dmabuf(v, pd, m, ways[i], access, r, &call);
		if (!rc) {
			r->way = ways[i];
			return 0;
		}
		r->failed[r->failed_n].way = ways[i];
		gdr_set_error(&r->failed[r->failed_n++].error, call, rc);
	}
	return -1;
}

int gdr_probe_open(struct gdr_probe *p, const char *device, struct gdr_error *e)
{
	const char *call;
	int rc = gdr_open(&p->v, device, &p->ctx, &call);

	if (!rc) {
		call = "ibv_alloc_pd";
		errno = 0;
		p->pd = p->v.alloc_pd(p->ctx);
		rc = p->pd ? 0 : gdr_failure();
	}
	if (!rc)
		return 0;
	gdr_set_error(e, call, rc);
	gdr_probe_close(p);
	return -1;
}

int gdr_probe_alloc(struct gdr_probe *p, const struct gdr_mem_ops *ops, int device, size_t bytes, struct gdr_error *e)
{
	const char *call = "";
	int rc;

	memset(&p->mem, 0, sizeof(p->mem));
	p->mem.ops = ops;
	rc = ops->alloc(&p->mem, bytes, device, &call);
	if (!rc)
		return 0;
	p->mem.ops = NULL;
	gdr_set_error(e, call, rc);
	return -1;
}

int gdr_probe_way(struct gdr_probe *p, enum gdr_way way, struct gdr_registration *r)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	if (gdr_register(&p->v, p->pd, &p->mem, &way, 1, access, r))
		return -1;
	(void)p->v.dereg_mr(r->mr);
	r->mr = NULL;
	return 0;
}

void gdr_probe_free(struct gdr_probe *p)
{
	if (p->mem.ops)
		p->mem.ops->release(&p->mem);
	p->mem.ops = NULL;
}

void gdr_probe_close(struct gdr_probe *p)
{
	gdr_probe_free(p);
	if (p->pd)
		(void)p->v.dealloc_pd(p->pd);
	if (p->ctx)
		(void)gdr_close(&p->v, p->ctx);
	p->pd = NULL;
	p->ctx = NULL;
}
