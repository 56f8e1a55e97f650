package child

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Held is the memory and the connections of a process.
type Held struct {
	RSS         int // kB, as VmRSS
	Anonymous   int // kB of RSS not backed by files: heap and stacks
	Connections int // established TCP connections to one address
}

// Less returns how much more h is than before.
func (h Held) Less(before Held) Held {
	return Held{h.RSS - before.RSS, h.Anonymous - before.Anonymous, h.Connections - before.Connections}
}

func (h Held) String() string {
	return fmt.Sprintf("%.1f MB RSS (%.1f MB anonymous), %d connections to Redis", float64(h.RSS)*1024/1e6,
		float64(h.Anonymous)*1024/1e6, h.Connections)
}

// Held reads what the process holds, counting connections to an IPv4 address. It works on Linux
// only.
func (p *Process) Held(addr string) (h Held, err error) {
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return h, err
	}
	h.RSS, h.Anonymous = kilobytes(string(status), "VmRSS:"), kilobytes(string(status), "RssAnon:")
	if h.RSS == 0 {
		return h, fmt.Errorf("%s has ended\n%s", p.Name, p.Tail())
	}
	h.Connections, err = connections(dir, addr)
	return h, err
}

func kilobytes(status, field string) int {
	_, rest, _ := strings.Cut(status, field)
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.Atoi(number)
	return n
}

// connections counts the sockets of the process that are connected to the address.
func connections(dir, addr string) (n int, err error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0, err
	}
	ip := to.Addr().As4()
	remote := fmt.Sprintf("%s:%04X",
		strings.ToUpper(hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, binary.BigEndian.Uint32(ip[:])))), to.Port())
	file, err := os.Open(dir + "net/tcp")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	inodes := make(map[string]bool)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 9 && f[2] == remote && f[3] == "01" {
			inodes["socket:["+f[9]+"]"] = true
		}
	}
	names, err := filepath.Glob(dir + "fd/*")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if target, err := os.Readlink(name); err == nil && inodes[target] {
			n++
		}
	}
	return n, nil
}
