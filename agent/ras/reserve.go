package ras

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Reserve finds a port of 127.0.0.1 for the processes of one job and gives its address, as NCCL_RAS_ADDR takes it.
// Until release is called the port is kept from whoever asks the kernel for a free one, yet the job's processes can
// listen on it: they share it with SO_REUSEPORT, as this socket does, which is bound but does not listen.
func Reserve() (address string, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("make a socket to reserve a port for RAS: %w", err)
	}
	release = func() { _ = unix.Close(fd) }
	// Not SO_REUSEADDR: with that, anybody who has it, too, may take a port on which nobody listens yet.
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		release()
		return "", nil, fmt.Errorf("reserve a port of 127.0.0.1 for RAS: %w", err)
	}
	inet, ok := bound.(*unix.SockaddrInet4)
	if !ok {
		release()
		return "", nil, fmt.Errorf("reserve a port of 127.0.0.1 for RAS: the kernel gave an address of type %T", bound)
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: inet.Port}).String(), release, nil
}
