package checks

// all is every check, from the hardware upward: the order of reports. A new
// check is one file and one line here.
var all = []Check{
	gpuPresent,
	rdmaDevicePresent,
	pcieLinkWidth,
	pcieLinkSpeed,
	bridgeLink,
	gpuNICPath,
	acsRedirect,
	iommuTranslation,
	bar1Size,
	gpuDirectAttribute,
	nicModel,
	gdrWay,
	nvregOptions,
	gdrdrv,
	rdmaCharDevice,
	rdmaPortState,
	rdmaPortRate,
	roceGID,
	memlock,
	perfBandwidth,
	perfLatency,
	perfData,
	perfCounters,
}
