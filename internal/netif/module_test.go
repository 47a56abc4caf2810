package netif

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// image is a module's memory: lower half under 0x100, upper halves by page.
type image map[int][]byte

const lowerHalf = 0x100

func (im image) put(page, at int, b ...byte) {
	if im[page] == nil {
		im[page] = make([]byte, halfPage)
	}
	copy(im[page][at%halfPage:], b)
}

func (im image) word(page, at int, v uint16) { im.put(page, at, byte(v>>8), byte(v)) }

func (im image) read(page, offset uint8) ([]byte, error) {
	p := int(page)
	if offset == 0 {
		p = lowerHalf
	}
	if im[p] == nil {
		return nil, unix.EINVAL
	}
	return im[p], nil
}

// qsfp28 is an optical 100G-SR4 module whose third lane gets no light.
func qsfp28() image {
	im := image{}
	im.put(lowerHalf, 0, 0x11, 0x08)
	im.put(lowerHalf, 3, 1<<2)       // rx loss of signal, lane 3
	im.put(lowerHalf, 6, 1<<7|1<<5)  // temperature high alarm and warning
	im.put(lowerHalf, 10, 0x40)      // lane 3 rx power low alarm
	im.put(lowerHalf, 12, 0x01)      // lane 4 tx bias low warning
	im.put(lowerHalf, 13, 0x80|0x08) // lanes 1 and 2 tx power high alarm
	im.word(lowerHalf, 22, 0x4b80)   // 75.5 °C
	im.word(lowerHalf, 26, 32830)    // 3.283 V
	for i, v := range []uint16{8000, 8100, 0, 8300} {
		im.word(lowerHalf, 34+2*i, v)
	}
	for i := range 4 {
		im.word(lowerHalf, 42+2*i, uint16(3250+i)) // 6.5 mA
		im.word(lowerHalf, 50+2*i, uint16(9000+i)) // 0.9 mW
	}
	im.put(0, 128, 0x11)
	im.put(0, 130, 0x0c) // MPO
	im.put(0, 147, 0x00) // 850 nm VCSEL
	im.put(0, 148, []byte("ACME OPTICS     ")...)
	im.put(0, 168, []byte("SR4-100         ")...)
	im.put(0, 184, []byte("A1")...)
	im.put(0, 220, 1<<5|1<<4|1<<3|1<<2) // all are monitored
	im.put(3, 128, 0)
	return im
}

// osfp is an optical 400G-DR4 module with four of eight lanes.
func osfp() image {
	im := image{}
	im.put(lowerHalf, 0, 0x19, 0x52, 0x00, 3<<1) // ModuleReady
	im.put(lowerHalf, 9, 1<<2|1<<4)              // temperature high warning, supply high alarm
	im.word(lowerHalf, 14, 0xf580)               // -10.5 °C
	im.word(lowerHalf, 16, 33000)
	im.put(lowerHalf, 39, 61, 100)
	im.put(lowerHalf, 85, 2) // single-mode
	im.put(0, 128, 0x19)
	im.put(0, 129, []byte("ACME OPTICS     ")...)
	im.put(0, 148, []byte("DR4-400         ")...)
	im.put(0, 164, []byte("B2")...)
	im.put(0, 203, 0x0c)
	im.put(0, 210, 0xf0)  // lanes 5 to 8 are not there
	im.put(0, 212, 0x06)  // 1310 nm EML
	im.put(1, 142, 0)     // one bank
	im.put(1, 159, 3)     // temperature and supply are monitored
	im.put(1, 160, 1|2|4) // bias, tx and rx power too
	im.put(2, 128, 0)
	im.put(0x11, 147, 1<<1) // rx loss of signal, lane 2
	im.put(0x11, 150, 1<<1) // rx power low alarm, lane 2
	im.put(0x11, 135, 1<<3) // tx fault, lane 4
	for i := range 8 {
		im.word(0x11, 154+2*i, uint16(12000+i)) // 1.2 mW
		im.word(0x11, 170+2*i, uint16(20000+i)) // 40 mA
		im.word(0x11, 186+2*i, uint16(11000*(1-i%2)))
	}
	return im
}

// moduleKernel answers about eth7 as ethtool_kernel does, with a module in it.
func moduleKernel(t testing.TB, im image, no syscall.Errno) kernel {
	head := headOfReply
	link := ethtoolKernel(t, port400())
	return genlOver(link, t, func(cmd uint8, attrs []byte) ([][]byte, syscall.Errno) {
		switch cmd {
		case unix.ETHTOOL_MSG_MODULE_GET:
			return [][]byte{slices.Concat(head, attr(modulePolicy, u8(2)), attr(moduleMode, u8(2)))}, 0
		case unix.ETHTOOL_MSG_MODULE_EEPROM_GET:
			if no != 0 {
				return nil, no
			}
			var page, offset, length int
			_ = attributes(attrs, func(ad *netlink.AttributeDecoder) error {
				switch ad.Type() {
				case eepromPage:
					page = int(ad.Uint8())
				case eepromOffset:
					offset = int(ad.Uint32())
				case eepromLength:
					length = int(ad.Uint32())
				}
				return nil
			})
			half := 0
			if offset >= halfPage {
				half = halfPage
			}
			b, err := im.read(uint8(page), uint8(half))
			if err != nil || offset-half+length > halfPage {
				return nil, unix.EINVAL
			}
			return [][]byte{append(slices.Clone(head), attr(eepromData, b[offset-half:][:length])...)}, 0
		}
		return nil, 0
	})
}

// genlOver puts answers to some of ethtool's questions over another kernel.
func genlOver(under kernel, t testing.TB, answer func(uint8, []byte) ([][]byte, syscall.Errno)) kernel {
	id, _ := servedFamily(t, unix.ETHTOOL_GENL_NAME, under)
	return func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		if uint16(m.Header.Type) == id && len(m.Data) > 4 && strings.Contains(string(m.Data), "eth7") {
			if list, no := answer(m.Data[0], m.Data[4:]); len(list) > 0 || no != 0 {
				var out []netlink.Message
				for _, b := range list {
					out = append(out, netlink.Message{Header: netlink.Header{Type: m.Header.Type}, Data: append([]byte{m.Data[0], 1, 0, 0}, b...)})
				}
				return out, no
			}
		}
		return under(m)
	}
}

func getModule(t testing.TB, k kernel) qos.Module {
	t.Helper()
	e, err := newEthtool(genetlink.NewConn(nltest.Dial(k.nltest)))
	if err != nil {
		t.Fatal(err)
	}
	return e.Module("eth7", func(string) {})
}

// firstNumber is the number that a value of ethtool -m begins with.
func firstNumber(t *testing.T, text, name string) float64 {
	t.Helper()
	f, _, _ := strings.Cut(said1(t, text, name), " ")
	n, err := strconv.ParseFloat(f, 64)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return n
}

func near(a, b float64) bool { return a-b < 0.006 && b-a < 0.006 } // ethtool rounds

// TestModuleAgainstTool compares with ethtool -m what we make of the same memory.
func TestModuleAgainstTool(t *testing.T) {
	for name, tt := range map[string]struct {
		im               image
		kind, rx         string
		lanes            int
		vendor, part     string
		firmware, medium string
		alarms           []string
	}{
		"QSFP28": {qsfp28(), "QSFP28", "Rcvr signal avg optical power(Channel %d)", 4, "ACME OPTICS", "SR4-100", "", "optical", []string{
			"temperature high alarm", "temperature high warning", "lane 1 tx power high alarm", "lane 2 tx power high alarm",
			"lane 3 rx power low alarm", "lane 3 rx loss of signal", "lane 4 tx bias low warning",
		}},
		"OSFP": {osfp(), "OSFP", "Receiver signal OMA (Channel %d)", 4, "ACME OPTICS", "DR4-400", "61.100", "optical", []string{
			"temperature high warning", "supply high alarm", "lane 2 rx loss of signal", "lane 2 rx power low alarm", "lane 4 tx fault",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := moduleKernel(t, tt.im, 0)
			m := getModule(t, k)
			said := string(k.tool(t, "ethtool", "-m", "eth7"))
			if m.Type.V != tt.kind || !strings.Contains(said1(t, said, "Identifier"), "("+tt.kind) {
				t.Errorf("kind %s, ethtool %s", m.Type.V, said1(t, said, "Identifier"))
			}
			for field, got := range map[string]string{"Vendor name": m.Vendor.V, "Vendor PN": m.PartNumber.V, "Vendor rev": m.Revision.V} {
				if want := said1(t, said, field); got != want {
					t.Errorf("%s %q, ethtool %q", field, got, want)
				}
			}
			if got, want := m.TemperatureC.V, firstNumber(t, said, "Module temperature"); !near(got, want) {
				t.Errorf("temperature %v, ethtool %v", got, want)
			}
			if got, want := m.SupplyVolts.V, firstNumber(t, said, "Module voltage"); !near(got, want) {
				t.Errorf("supply %v, ethtool %v", got, want)
			}
			if len(m.Lanes.V) != tt.lanes {
				t.Fatalf("%d lanes", len(m.Lanes.V))
			}
			for i, l := range m.Lanes.V {
				for field, got := range map[string]*float64{
					"Laser tx bias current (Channel %d)": l.BiasMilliA, "Transmit avg optical power (Channel %d)": l.TxMilliwatt, tt.rx: l.RxMilliwatt,
				} {
					line := fmt.Sprintf(field, i+1)
					if want := firstNumber(t, said, line); !near(*got, want) {
						t.Errorf("%s %v, ethtool %v", line, *got, want)
					}
				}
			}
			if m.Firmware.V != tt.firmware {
				t.Errorf("firmware %+v", m.Firmware)
			}
			slices.Sort(tt.alarms)
			slices.Sort(m.Alarms.V)
			if d := cmp.Diff(tt.alarms, m.Alarms.V); d != "" {
				t.Errorf("alarms (-want +got):\n%s", d)
			}
			if m.Medium.V != tt.medium || m.PowerPolicy.V != "auto" || m.PowerMode.V != "high" {
				t.Errorf("%+v %+v %+v", m.Medium, m.PowerPolicy, m.PowerMode)
			}
			// Not of CMIS: ethtool 6.1 puts its flags on other lanes than the
			// specification does.
			if tt.kind == "QSFP28" {
				if d := cmp.Diff(toolAlarms(said), slices.DeleteFunc(m.Alarms.V, func(s string) bool { return strings.Contains(s, " of ") })); d != "" {
					t.Errorf("alarms (-ethtool +ours):\n%s", d)
				}
			}
		})
	}
}

var toolAlarm = regexp.MustCompile(`^(?:Laser |Module )?(.*?) ((?:high|low) (?:alarm|warning)) *(?:\((?:Chan|Channel) (\d)\))?$`)

// toolAlarms are the lines of ethtool -m that are on, in our words.
func toolAlarms(text string) []string {
	var out []string
	for l := range strings.Lines(text) {
		k, v, _ := strings.Cut(l, ":")
		m := toolAlarm.FindStringSubmatch(strings.TrimSpace(k))
		if m == nil || strings.TrimSpace(v) != "On" {
			continue
		}
		name := strings.NewReplacer("bias current", "tx bias", "voltage", "supply").Replace(m[1]) + " " + m[2]
		if m[3] != "" {
			name = "lane " + m[3] + " " + name
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Cables measure nothing; other modules are named and no more.
func TestModuleKinds(t *testing.T) {
	dac := image{}
	dac.put(lowerHalf, 0, 0x19, 0x52, 1<<7, 3<<1)
	dac.put(0, 129, []byte("ACME CABLES     ")...)
	dac.put(0, 202, 1<<6|3) // 3 times 1 m
	dac.put(0, 212, 0x0a)
	m := decodeModule(dac.read)
	if m.LengthM.V != 3 || m.Medium.V != "copper" || m.TemperatureC.State != fact.Absent || m.Lanes.State != fact.Absent || m.PartNumber.State != fact.Absent || m.State.V != "ModuleReady" || m.Firmware.State != fact.Unsupported {
		t.Errorf("a copper cable: %+v", m)
	}
	scaled := osfp()
	scaled.put(1, 160, 1|1<<3) // bias alone, in units of 4 µA (CMIS 5.2, table 8-49)
	if m = decodeModule(scaled.read); *m.Lanes.V[0].BiasMilliA != 80 || m.Lanes.V[0].RxMilliwatt != nil || m.Lanes.V[0].TxMilliwatt != nil {
		t.Errorf("scaled bias: %+v", m.Lanes.V[0])
	}
	sfp := image{}
	sfp.put(lowerHalf, 0, 0x03)
	sfp.put(lowerHalf, 8, 1<<2)
	sfp.put(lowerHalf, 20, []byte("ACME            ")...)
	sfp.put(0, 128, 0)
	if m = decodeModule(sfp.read); m.Type.V != "SFP" || m.Vendor.V != "ACME" || m.Medium.V != "copper" || m.TemperatureC.State != fact.Unsupported {
		t.Errorf("SFP: %+v", m)
	}
	odd := image{}
	odd.put(lowerHalf, 0, 0x77)
	if m = decodeModule(odd.read); m.Type.V != "identifier 0x77" || m.Vendor.State != fact.Unsupported {
		t.Errorf("an unknown kind: %+v", m)
	}
	half := qsfp28()
	delete(half, 0)
	if m = decodeModule(half.read); m.Type.V != "QSFP28" || m.Vendor.State != fact.Failed || m.TemperatureC.State != fact.Failed {
		t.Errorf("the upper half cannot be read: %+v", m)
	}
	noLanes := osfp()
	delete(noLanes, 0x11)
	if m = decodeModule(noLanes.read); m.TemperatureC.V != -10.5 || m.Lanes.State != fact.Failed || m.Alarms.State != fact.Failed {
		t.Errorf("page 11h cannot be read: %+v", m)
	}
}

func TestModuleStates(t *testing.T) {
	for no, want := range map[syscall.Errno]fact.State{
		unix.EPERM: fact.Denied, unix.EOPNOTSUPP: fact.Unsupported, unix.EIO: fact.Failed, unix.ENODEV: fact.Absent,
	} {
		if m := getModule(t, moduleKernel(t, nil, no)); m.Type.State != want || m.Lanes.State != want || m.PowerMode.V != "high" {
			t.Errorf("%v: %+v", no, m)
		}
	}
}

func FuzzModule(f *testing.F) {
	flat := func(im image) []byte { return slices.Concat(im[lowerHalf], im[0], im[1], im[0x11]) }
	f.Add(flat(qsfp28()))
	f.Add(flat(osfp()))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := decodeModule(func(page, offset uint8) ([]byte, error) {
			at := map[uint8]int{0: 1, 1: 2, 0x11: 3}[page] * halfPage
			if offset == 0 {
				at = 0
			}
			return b[min(at, len(b)):min(at+halfPage, len(b))], nil
		})
		if v, ok := m.SupplyVolts.Get(); ok && v == 0 {
			t.Error("a module without a supply")
		}
		if m.Type.State == fact.NotCollected || m.Alarms.State == fact.NotCollected || m.Lanes.State == fact.NotCollected {
			t.Errorf("no state: %+v", m)
		}
	})
}
