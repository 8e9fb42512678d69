package statemark.common

import scala.collection.immutable.ArraySeq

/** What a store knows of the file that brought a version to it: whoever has written or read that file takes it then,
  * and it goes with the version from there on, to disk as well. A later process compares it with the file. What
  * its bytes mean is the affair of who took it.
  *
  * @param kind says how the bytes are to be read, 0 to 127
  */
final case class Fingerprint(kind: Byte, bytes: ArraySeq[Byte])
