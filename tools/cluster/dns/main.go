// A CoreDNS with the few plug-ins that a test cluster needs; the full one takes three times as long to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// The order in which plug-ins see a query; dnsserver's own list names only what is compiled in by the full CoreDNS.
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
