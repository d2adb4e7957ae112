# cpack reads this file for each kind of package. Debian's are in /opt, because /usr/bin may have a `convert` of ImageMagick.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /opt/lockstep)
endif()
