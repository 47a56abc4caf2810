#define _GNU_SOURCE /* dlvsym */
#include "table.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

char *gdr_verbs_trace;

static char *reason(const char *fallback)
{
	const char *text = dlerror();

	return strdup(text ? text : fallback);
}

char *gdr_verbs_load(struct gdr_verbs *v, const char *library)
{
	void *lib = GDR_VERB("dlopen of libibverbs", dlopen(library, RTLD_NOW | RTLD_LOCAL));

	if (!lib)
		return reason("dlopen failed");
#define GDR_LOOK_UP(name, version, result, args) \
	*(void **)&v->name = dlvsym(lib, "ibv_" #name, version);
#define GDR_DEMAND(name, version, result, args) \
	if (!v->name)                           \
		return reason("no ibv_" #name);
#define GDR_LOOK_UP_OR_FAIL(name, version, result, args) \
	GDR_LOOK_UP(name, version, result, args)         \
	GDR_DEMAND(name, version, result, args)
	GDR_VERBS_REQUIRED(GDR_LOOK_UP_OR_FAIL)
	GDR_VERBS_OPTIONAL(GDR_LOOK_UP)
#define GDR_LOOK_UP_INNER(name, version, result, args) \
	*(void **)&v->name = dlvsym(lib, "_ibv_" #name, version);
	GDR_VERBS_INNER(GDR_LOOK_UP_INNER)
	return NULL;
}

void gdr_mlx5_load(struct gdr_verbs *v, const char *library)
{
	void *lib = GDR_VERB("dlopen of libmlx5", dlopen(library, RTLD_NOW | RTLD_LOCAL));

	if (lib)
		*(void **)&v->mlx5_reg_dmabuf_mr = dlvsym(lib, "mlx5dv_reg_dmabuf_mr", "MLX5_1.25");
}

int gdr_failure(void)
{
	return errno ? errno : EIO;
}

int gdr_code(int rc)
{
	return rc > 0 ? rc : rc ? gdr_failure() : 0;
}

int gdr_open(const struct gdr_verbs *v, const char *name, struct ibv_context **ctx, const char **call)
{
	struct ibv_device **list;
	int i, rc = ENODEV;

	*call = "ibv_get_device_list";
	errno = 0;
	list = GDR_VERB("ibv_get_device_list", v->get_device_list(NULL));
	if (!list)
		return gdr_failure();
	for (i = 0; list[i]; i++) {
		if (strcmp(v->get_device_name(list[i]), name))
			continue;
		*call = "ibv_open_device";
		errno = 0;
		*ctx = GDR_VERB("ibv_open_device", v->open_device(list[i]));
		rc = *ctx ? 0 : gdr_failure();
		break;
	}
	v->free_device_list(list);
	return rc;
}

int gdr_close(const struct gdr_verbs *v, struct ibv_context *ctx)
{
	errno = 0;
	return gdr_code(GDR_VERB("ibv_close_device", v->close_device(ctx)));
}

int gdr_query_device(const struct gdr_verbs *v, struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	errno = 0;
	return gdr_code(GDR_VERB("ibv_query_device", v->query_device(ctx, attr)));
}

int gdr_query_port(const struct gdr_verbs *v, struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	/* The exported function fills the older, shorter structure: a prefix. */
	errno = 0;
	return gdr_code(GDR_VERB("ibv_query_port", v->query_port(ctx, port, (struct _compat_ibv_port_attr *)attr)));
}

int gdr_query_port_speed(const struct gdr_verbs *v, struct ibv_context *ctx, uint8_t port, uint64_t *speed)
{
	if (!v->query_port_speed)
		return ENOSYS;
	errno = 0;
	return gdr_code(GDR_VERB("ibv_query_port_speed", v->query_port_speed(ctx, port, speed)));
}

int gdr_probe_dmabuf(const struct gdr_verbs *v, struct ibv_context *ctx, int *answer)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int rc;

	errno = 0;
	pd = v->alloc_pd(ctx);
	if (!pd)
		return gdr_failure();
	errno = 0;
	mr = v->reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
	*answer = mr ? 0 : gdr_failure();
	errno = 0;
	rc = mr ? gdr_code(v->dereg_mr(mr)) : 0;
	return rc ? rc : gdr_code(v->dealloc_pd(pd));
}
