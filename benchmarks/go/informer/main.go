// A shared informer of client-go on pods, for benchmarks/watch.py: `informer KUBECONFIG [trimmed|protobuf]` says
// "synced", then answers each line of its input with what it holds, UID to resourceVersion, as one line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	// The client's own limit would hold nothing up here: there are two requests.
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	mode := strings.Join(os.Args[2:], "")
	if mode == "protobuf" {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	if mode == "trimmed" {
		// What users of client-go do to save memory: managedFields go before an object is stored.
		strip := func(each any) (any, error) {
			if pod, ok := each.(*corev1.Pod); ok {
				pod.ManagedFields = nil
			}
			return each, nil
		}
		if err := informer.SetTransform(strip); err != nil {
			panic(err)
		}
	}
	factory.Start(context.Background().Done())
	cache.WaitForCacheSync(context.Background().Done(), informer.HasSynced)
	os.Stdout.WriteString("synced\n")

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		held := map[string]string{}
		for _, each := range informer.GetStore().List() {
			pod := each.(*corev1.Pod)
			held[string(pod.UID)] = pod.ResourceVersion
		}
		line, err := json.Marshal(held)
		if err != nil {
			panic(err)
		}
		os.Stdout.Write(append(line, '\n'))
	}
}
