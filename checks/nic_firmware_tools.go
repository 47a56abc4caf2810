package checks

import (
	"slices"
	"strings"
)

// firmwareTool is how NICs of one maker get other firmware. {pci} and {netdev}
// are the NIC's; what is in capitals the administrator has to know.
type firmwareTool struct {
	maker   string
	drivers []string // as a device names its driver
	tool    string   // and whose it is, or where
	find    string   // what the command needs to know; empty: nothing
	command string
	then    []string
}

// firmwareTools are from:
//   - NVIDIA: the manual of MFT 4.31 (mlxfwmanager, mlxfwreset, flint).
//   - Broadcom: docs.weka.io, Broadcom adapter setup, shows a session of niccli;
//     the kernel's bnxt_dl_flash_update takes the same package.
//   - AMD: instinct.docs.amd.com, system acceptance, NIC installation.
//   - Intel: the adapter guide 705831; docs.nvidia.com's DGX H100 firmware guide
//     shows a session.
//   - Chelsio: set_flash in the kernel's cxgb4_ethtool.c, ethtool(8).
var firmwareTools = []firmwareTool{
	{"NVIDIA", []string{"mlx5_core", "mlx4_core"}, "mlxfwmanager of DOCA-OFED", "", "sudo mlxfwmanager -d {pci} --online -u", []string{
		"It takes effect with a reboot or a reset: sudo mlxfwreset -d {pci} reset",
		"If it was updated already, it waits for that; \"FW Version\" and \"FW Version(Running)\" tell: sudo flint -d {pci} q",
	}},
	{"Broadcom", []string{"bnxt_en", "bnxt_re"}, "niccli of Broadcom's bundle", "The number N that niccli gives the NIC: sudo niccli --list", "sudo niccli --dev N install FILE.pkg", []string{
		"Or with FILE.pkg below /lib/firmware: sudo devlink dev flash pci/{pci} file FILE.pkg",
		"It takes effect with a reboot",
	}},
	{"AMD", []string{"ionic"}, "nicctl of AMD's bundle", "The UUID of the card: sudo nicctl show card", "sudo nicctl update firmware -i ainic_fw_salina.tar -c UUID", []string{
		"It takes effect with a reset: sudo nicctl reset card -c UUID",
	}},
	{"Intel", []string{"ice", "i40e", "irdma"}, "Intel's NVM Update Package for the card, in its folder; it asks which card", "", "sudo ./nvmupdate64e", []string{
		"It takes effect with a reboot",
	}},
	{"Chelsio", []string{"cxgb4"}, "ethtool and FILE.bin of Chelsio's Unified Wire, below /lib/firmware", "", "sudo ethtool -f {netdev} FILE.bin", []string{
		"It takes effect with a reboot",
	}},
}

// updateFirmware are the steps that bring the subject's NIC to other firmware.
// Where no tool is known, none is made up.
func (c *Case) updateFirmware(lead string) []string {
	nic := c.Subject.NIC
	driver, _, _ := strings.Cut(nic.Driver.Or("?"), ".") // a subfunction's is mlx5_core.sf
	i := slices.IndexFunc(firmwareTools, func(f firmwareTool) bool { return slices.Contains(f.drivers, driver) })
	if i < 0 {
		return []string{
			lead + " with its maker's tool; of the driver " + driver + " no command is known here",
			"What runs, and what waits for a reset: sudo devlink dev info pci/" + c.firmwareName(),
		}
	}
	f := firmwareTools[i]
	values := map[string]string{"pci": c.firmwareName(), "netdev": "INTERFACE"}
	for _, p := range nic.Ports {
		values["netdev"] = orElse(p.NetDev.Or(""), values["netdev"])
	}
	var out []string
	for _, line := range slices.Concat([]string{f.find, lead + " with " + f.tool + ": " + f.command}, f.then) {
		if filled, _ := fill(line, values); filled != "" {
			out = append(out, filled)
		}
	}
	return out
}

// firmwareFixes are the makers' commands where no NIC is named.
func firmwareFixes() []string {
	var out []string
	for _, f := range firmwareTools {
		if f.find != "" {
			out = append(out, f.find)
		}
		line, _ := fill(f.maker+", with "+f.tool+": "+f.command, map[string]string{"pci": "ADDRESS", "netdev": "INTERFACE"})
		out = append(out, line)
	}
	return append(out, "Another maker's NIC: with that maker's tool; no command is known here")
}
