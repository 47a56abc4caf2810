/* libibverbs' own names must not be called: go-nvml's linker flag lets the
 * whole program link with symbols that nothing defines, and a call would end
 * the process. The table's members stand for them. */
#ifndef GDRCHECK_VERBS_POISON_H
#define GDRCHECK_VERBS_POISON_H

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#pragma GCC poison ibv_ack_async_event ibv_ack_cq_events ibv_alloc_pd
#pragma GCC poison ibv_attach_mcast ibv_close_device ibv_create_ah
#pragma GCC poison ibv_create_ah_from_wc ibv_create_comp_channel ibv_create_cq
#pragma GCC poison ibv_create_qp ibv_create_srq ibv_dealloc_pd
#pragma GCC poison ibv_dereg_mr ibv_destroy_ah ibv_destroy_comp_channel
#pragma GCC poison ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq
#pragma GCC poison ibv_detach_mcast ibv_dofork_range ibv_dontfork_range
#pragma GCC poison ibv_event_type_str ibv_fork_init ibv_free_device_list
#pragma GCC poison ibv_get_async_event ibv_get_cq_event ibv_get_device_guid
#pragma GCC poison ibv_get_device_index ibv_get_device_list ibv_get_device_name
#pragma GCC poison ibv_get_pkey_index ibv_import_device ibv_import_dm
#pragma GCC poison ibv_import_mr ibv_import_pd ibv_init_ah_from_wc
#pragma GCC poison ibv_is_fork_initialized ibv_modify_qp ibv_modify_srq
#pragma GCC poison ibv_node_type_str ibv_open_device ibv_port_state_str
#pragma GCC poison ibv_qp_to_qp_ex ibv_query_device ibv_query_ece
#pragma GCC poison ibv_query_gid ibv_query_gid_type ibv_query_pkey
#pragma GCC poison ibv_query_port ibv_query_qp ibv_query_qp_data_in_order
#pragma GCC poison ibv_query_srq ibv_rate_to_mbps ibv_rate_to_mult
#pragma GCC poison ibv_reg_dmabuf_mr ibv_reg_mr ibv_reg_mr_iova
#pragma GCC poison ibv_reg_mr_iova2 ibv_rereg_mr ibv_resize_cq
#pragma GCC poison ibv_resolve_eth_l2_from_gid ibv_set_ece ibv_unimport_dm
#pragma GCC poison ibv_unimport_mr ibv_unimport_pd ibv_wc_status_str
#pragma GCC poison ibv_query_port_speed ibv_reg_mr_ex

#endif
