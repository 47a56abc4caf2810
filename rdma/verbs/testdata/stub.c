/* A test double of libibverbs with one device of two ports. Its registration
 * answers as a stack that supports dma-buf does: EBADF for descriptor -1. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

static struct ibv_device dev = { .name = "stub0" };
static struct ibv_context ctx;
static struct ibv_pd pd;
static int opened, pds; /* how many are open */

struct ibv_device **ibv_get_device_list(int *num)
{
	static struct ibv_device *list[2] = { &dev };

	if (num)
		*num = 1;
	return list;
}
void ibv_free_device_list(struct ibv_device **list) { (void)list; }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	(void)d;
	if (opened++) { /* the last probe did not close it */
		errno = EBUSY;
		return NULL;
	}
	return &ctx;
}
int ibv_close_device(struct ibv_context *c)
{
	(void)c;
	errno = EBUSY;
	return pds ? -1 : (opened--, 0);
}
int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	strcpy(a->fw_ver, "28.39.1002");
	a->phys_port_cnt = 2;
	return 0;
}
int ibv_query_port(struct ibv_context *c, uint8_t n, struct _compat_ibv_port_attr *out)
{
	struct ibv_port_attr *a = (struct ibv_port_attr *)out;

	(void)c;
	a->state = n == 1 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = n == 1 ? IBV_MTU_4096 : IBV_MTU_1024;
	return 0;
}
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c) { (void)c; pds++; return &pd; }
int ibv_dealloc_pd(struct ibv_pd *p) { (void)p; pds--; return 0; }
int ibv_dereg_mr(struct ibv_mr *mr) { (void)mr; return 0; }
#ifdef WITH_DMABUF
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *p, uint64_t off, size_t len, uint64_t iova, int fd, int access)
{
	(void)p, (void)off, (void)len, (void)iova, (void)access;
	errno = fd == -1 ? EBADF : EINVAL;
	return NULL;
}
#endif

/* What every library has, and a probe does not call. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *p, void *a, size_t n, int access) { (void)p, (void)a, (void)n, (void)access; return NULL; }
int ibv_query_gid(struct ibv_context *c, uint8_t n, int i, union ibv_gid *g) { (void)c, (void)n, (void)i, (void)g; return -1; }
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c) { (void)c; return NULL; }
int ibv_destroy_comp_channel(struct ibv_comp_channel *c) { (void)c; return 0; }
struct ibv_cq *ibv_create_cq(struct ibv_context *c, int n, void *o, struct ibv_comp_channel *ch, int v) { (void)c, (void)n, (void)o, (void)ch, (void)v; return NULL; }
int ibv_destroy_cq(struct ibv_cq *c) { (void)c; return 0; }
int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **q, void **o) { (void)c, (void)q, (void)o; return -1; }
void ibv_ack_cq_events(struct ibv_cq *c, unsigned int n) { (void)c, (void)n; }
struct ibv_qp *ibv_create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *a) { (void)p, (void)a; return NULL; }
int ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *a, int m) { (void)q, (void)a, (void)m; return 0; }
int ibv_destroy_qp(struct ibv_qp *q) { (void)q; return 0; }
struct ibv_ah *ibv_create_ah(struct ibv_pd *p, struct ibv_ah_attr *a) { (void)p, (void)a; return NULL; }
int ibv_destroy_ah(struct ibv_ah *a) { (void)a; return 0; }
